package webhooks

import (
	"net/netip"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provider "sigs.k8s.io/cluster-api-ipam-provider-in-cluster/api/v1alpha2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/internal/convert"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
)

// TestInClusterPoolKeepsUsedAddresses edits a pool of which 10.0.0.7, and 10.0.0.99 from before an edit, are
// in use.
func TestInClusterPoolKeepsUsedAddresses(t *testing.T) {
	held := func(name, block string) ipam.Record {
		holder := convert.HolderOfAddressClaim(ipam.Name{Namespace: "team", Name: name})
		return ipam.Record{
			Name: ipam.Name{Namespace: "team", Name: name}, UID: name, Block: netip.MustParsePrefix(block),
			Pool: ipam.PoolOfKind(ipam.PoolKindInClusterIPPool, "team", "p"), Holder: holder, Purpose: ipam.PurposeClaim, State: ipam.StateBound,
		}
	}
	r := replica.WithRecords(t, replica.Options{}, held("a", "10.0.0.7/32"), held("former", "10.0.0.99/32"))
	t.Cleanup(r.Allocator.Close)
	s := &services{Options: Options{Ledger: r.Ledger}}
	gateway := ""
	pool := func(addresses ...string) *incluster.InClusterIPPool {
		return &incluster.InClusterIPPool{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p"}, Spec: provider.InClusterIPPoolSpec{Addresses: addresses, Prefix: 24, Gateway: gateway},
		}
	}
	var rows []messages.Row
	for name, c := range map[string]struct {
		addresses []string
		refused   string
	}{
		"others are given up":       {[]string{"10.0.0.1-10.0.0.8"}, ""},
		"a used one is given up":    {[]string{"10.0.0.8-10.0.0.20"}, "spec.addresses: Forbidden: the pool would no longer have addresses that are in use, 10.0.0.7 of IPAddressClaim team/a: keep them, or have them released first"},
		"an invalid one is written": {[]string{"10.0.0.7", "x"}, `spec.addresses[1]: Invalid value: "x"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.updateInCluster(pool("10.0.0.1-10.0.0.20"), pool(c.addresses...))
			if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("got %v, want %q", err, c.refused)
			}
			if strings.Contains(c.refused, "Forbidden") {
				rows = append(rows, messages.Row{Object: "InClusterIPPool", On: "update", Answer: messages.Invalid, Message: c.refused})
			}
		})
	}
	if err := s.updateInCluster(pool("x"), pool("10.0.0.8")); err != nil {
		t.Errorf("a pool that cannot be read cannot be corrected: %v", err)
	}
	before := pool("10.0.0.1-10.0.0.20")
	gateway = "10.0.0.7"
	if err := s.updateInCluster(before, pool("10.0.0.1-10.0.0.20")); err == nil || !strings.Contains(err.Error(), "10.0.0.7 of IPAddressClaim team/a") {
		t.Errorf("a used address becomes the gateway: %v", err)
	}
	messages.Golden(t, rows)

	gateway = ""
	s.InCluster, s.Catalog = true, r.Catalog
	valid := inClusterValidator[*incluster.InClusterIPPool](s)
	if valid.create(pool("10.0.0.1")) != nil || valid.create(pool("x")) == nil {
		t.Error("a create is judged wrongly")
	}
	if _, err := valid.update(t.Context(), admission.Request{}, before, pool("10.0.0.1")); err == nil {
		t.Error("a used address can be given up")
	}
	dryRun := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{DryRun: new(true)}}
	if err := valid.remove(t.Context(), dryRun, before); err == nil {
		t.Error("a pool that is in use can be deleted")
	}
	before.Annotations = map[string]string{incluster.AnnotationSkipDeleteCheck: ""}
	if err := valid.remove(t.Context(), dryRun, before); err != nil {
		t.Errorf("a pool in use whose deletion is not checked: %v", err)
	}
}
