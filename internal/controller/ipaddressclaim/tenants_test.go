package ipaddressclaim

import (
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// TestDeletionInOtherNamespaceIsNotNoted covers requests of other namespaces, which are dropped
// before they reach the controller, so that a noted deletion would stay for ever.
func TestDeletionInOtherNamespaceIsNotNoted(t *testing.T) {
	_, record := servedClaim()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	c := attachReplica(allocatorWith(t, record), &Controller{Within: kubeutil.NamespacesOf("inside")})
	for _, namespace := range []string{"inside", "outside"} {
		claim := &ipamv1.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", UID: "uid"}}
		c.claims().Delete(t.Context(), event.DeleteEvent{Object: claim}, q)
	}
	if _, ok := c.expectations.deletedClaim(ipam.Name{Namespace: "inside", Name: "a"}); !ok {
		t.Error("the deletion in namespace inside is not noted")
	}
	if _, ok := c.expectations.deletedClaim(ipam.Name{Namespace: "outside", Name: "a"}); ok {
		t.Error("the deletion in namespace outside is noted")
	}
}

// TestConditionHidesHolderFromOtherProjects expects the condition of a claim, with an
// IPAddress or without, to name the holder of the address to the claim's own project alone.
func TestConditionHidesHolderFromOtherProjects(t *testing.T) {
	_, record := servedClaim()
	c := attachReplica(allocatorWith(t, record), &Controller{})
	for namespace, project := range map[string]string{"team": "red", "friends": "red", "strangers": "blue"} {
		c.Catalog.SetProject(namespace, project)
	}
	block := netip.MustParsePrefix("10.0.0.1/32")
	taken := &ipam.TakenError{Block: block, Pool: record.Pool, Holder: record.Holder, Overlap: block}
	for _, withAddress := range []bool{true, false} {
		for namespace, named := range map[string]bool{"friends": true, "strangers": false} {
			s, _ := servedClaim()
			s.name.Namespace, s.claim.Namespace = namespace, namespace
			if !withAddress {
				s.address = nil
			}
			_ = c.applyResult(s, taken)
			message := s.claim.Status.Conditions[0].Message
			if strings.Contains(message, "team/a") != named || !strings.Contains(message, "10.0.0.1/32") {
				t.Errorf("in namespace %s, with an IPAddress: %t: %q; the holder is named: want %t", namespace, withAddress, message, named)
			}
		}
	}
}
