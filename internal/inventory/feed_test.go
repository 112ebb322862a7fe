package inventory

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

func TestOpenSinceIsFirstReadyTime(t *testing.T) {
	first, since := metav1.NewTime(time.Date(2029, 1, 1, 0, 0, 0, 0, time.UTC)), metav1.NewTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	a := newUnsyncedCatalog()
	for name, c := range map[string]struct {
		first      *metav1.Time
		conditions []metav1.Condition
		want       time.Time
	}{
		"no condition is set": {nil, nil, time.Time{}},
		"it is not ready":     {nil, []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, LastTransitionTime: since}}, time.Time{}},
		"it is ready":         {nil, []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, LastTransitionTime: since}}, since.Time},
		"it was ready":        {&first, []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, LastTransitionTime: since}}, first.Time},
		"it is ready again":   {&first, []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, LastTransitionTime: since}}, first.Time},
	} {
		pool := build.Pool("p").CIDR("10.0.0.0/24").Obj()
		pool.Status.FirstReadyTime, pool.Status.Conditions = c.first, c.conditions
		a.recordPool(pool)
		if got, _ := a.Pool(ipam.PoolNamed("p")); !got.OpenSince.Equal(c.want) {
			t.Errorf("%s: since %v, want %v", name, got.OpenSince, c.want)
		}
	}
}

func TestUnreadableClassIsRemoved(t *testing.T) {
	a := newUnsyncedCatalog()
	class := build.Class("gold").Length(28).Obj()
	class.Annotations = map[string]string{v1alpha1.AnnotationDefaultClass: "true"}
	a.onClassUpdate(class)
	if got, ok := a.Class("gold"); !ok || !got.Default || got.Length != 28 {
		t.Errorf("got %+v, %t; want it, as the default", got, ok)
	}
	class = class.DeepCopy()
	class.Annotations[v1alpha1.AnnotationDefaultClass] = "false"
	a.onClassUpdate(class)
	if got, _ := a.Class("gold"); got.Default {
		t.Error("it is the default still")
	}
	class = class.DeepCopy()
	class.Spec.DefaultPrefixLength = new(int32(200))
	a.onClassUpdate(class)
	if got, ok := a.Class("gold"); ok {
		t.Errorf("got %+v, which cannot be read", got)
	}
}
