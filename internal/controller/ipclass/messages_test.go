package ipclass

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
)

// TestClassConditionStatesRemedy covers each of its reasons.
func TestClassConditionStatesRemedy(t *testing.T) {
	r := replica.New(replica.Options{})
	c := &Controller{Ledger: r.Ledger, Catalog: r.Catalog, Metrics: r.Metrics}
	c.Catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "first", Native: true, Family: ipam.IPv4}, Default: true, Created: time.Unix(1, 0)})
	var rows []messages.Row
	for _, test := range []struct {
		reason, value string
		edit          func(*v1alpha1.IPClass)
	}{
		{v1alpha1.ReasonForeignProvisioner, "example.com/ipam", func(class *v1alpha1.IPClass) { class.Spec.Provisioner = "example.com/ipam" }},
		{v1alpha1.ReasonNotDefault, `"first"`, func(class *v1alpha1.IPClass) {
			class.Annotations = map[string]string{v1alpha1.AnnotationDefaultClass: "true"}
		}},
		{v1alpha1.ReasonNotDefault, `"next"`, func(class *v1alpha1.IPClass) {
			class.Annotations = map[string]string{v1alpha1.AnnotationDefaultClass: "true"}
			c.Catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "next", Native: true, Family: ipam.IPv4}, Default: true, Replaces: "gold"})
		}},
		{v1alpha1.ReasonNoPools, "", func(class *v1alpha1.IPClass) { class.Status.Pools = 0 }},
		{v1alpha1.ReasonReady, "", func(*v1alpha1.IPClass) {}},
	} {
		class := &v1alpha1.IPClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Spec: v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4}}
		class.Status.Pools = 1
		test.edit(class)
		c.condition(class)
		ready := class.Status.Conditions[0]
		if ready.Reason != test.reason {
			t.Errorf("got reason %s, want %s", ready.Reason, test.reason)
		}
		rows = append(rows, messages.Row{Object: "IPClass", On: "condition Ready", Answer: string(ready.Status) + ", " + ready.Reason, Value: test.value, Message: ready.Message})
	}
	messages.Golden(t, rows)
}
