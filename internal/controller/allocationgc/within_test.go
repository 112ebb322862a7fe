package allocationgc

import (
	"testing"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// TestOtherNamespacesLeaveNoNote covers requests of other namespaces, which are dropped before
// they reach the controller, so that a note of them would stay for ever.
func TestOtherNamespacesLeaveNoNote(t *testing.T) {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	c := &Controller{Within: kubeutil.NamespacesOf("inside", "operator"), deletedHolders: map[ipam.Name]string{}, queue: q}
	claims := c.claims()
	for _, namespace := range []string{"inside", "outside"} {
		name := ipam.Name{Namespace: namespace, Name: "record"}
		c.noteNew(name)
		c.ReportDeleted("uid", ipam.Name{Namespace: namespace, Name: "other"})
		claim := &v1alpha1.IPClaim{}
		claim.Namespace, claim.UID, claim.Spec.AllocationName = namespace, "uid", name.Name
		claims.Delete(t.Context(), event.DeleteEvent{Object: claim}, q)
	}
	if len(c.newRecords) != 1 || c.newRecords[0].Namespace != "inside" {
		t.Errorf("new records: %v, want that of namespace inside alone", c.newRecords)
	}
	for name := range c.deletedHolders {
		if name.Namespace != "inside" {
			t.Errorf("the deletion of the holder of %s is noted", name)
		}
	}
	if len(c.deletedHolders) != 2 {
		t.Errorf("%d deletions of namespace inside are noted, want 2", len(c.deletedHolders))
	}
}
