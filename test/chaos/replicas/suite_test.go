// Package replicas plays several replicas of the operator against each other, and checks the state
// of the API server, not the memory of the replicas.
package replicas

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// orphanGrace is short here: tests wait for it.
const orphanGrace = 5 * time.Second

// waitTimeout bounds every wait.
const waitTimeout = 90 * time.Second

func TestReplicas(t *testing.T) {
	specs.Run(t, "Replicas", waitTimeout, 50*time.Millisecond)
}

// world holds a cluster with a client.
type world struct{ *suite.World }

func start(options cluster.Options) *world {
	GinkgoHelper()
	options.OrphanGrace = orphanGrace
	w := &world{suite.Start(GinkgoTB(), options)}
	w.Patience = waitTimeout
	return w
}

func (w *world) claims(ctx context.Context, namespace string) []v1alpha1.IPClaim {
	GinkgoHelper()
	list := &v1alpha1.IPClaimList{}
	Expect(w.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	return list.Items
}

func (w *world) records(ctx context.Context, namespace string) []v1alpha1.IPAllocation {
	GinkgoHelper()
	list := &v1alpha1.IPAllocationList{}
	Expect(w.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	return list.Items
}

// available returns the number of free addresses in the status of a pool.
func (w *world) available(ctx context.Context, pool string) string {
	GinkgoHelper()
	obj := &v1alpha1.IPPool{}
	Expect(w.Get(ctx, client.ObjectKey{Name: pool}, obj)).To(Succeed())
	return obj.Status.Capacity.Available
}

// expectDisjoint fails if two blocks overlap: sorted, those would be neighbors.
func expectDisjoint(blocks []netip.Prefix) {
	GinkgoHelper()
	slices.SortFunc(blocks, netip.Prefix.Compare)
	for i := 1; i < len(blocks); i++ {
		Expect(blocks[i].Overlaps(blocks[i-1])).To(BeFalse(), "two holders: %s and %s", blocks[i-1], blocks[i])
	}
}

// expectHeld fails if a claim with a block has no record of the same block.
func expectHeld(claims []v1alpha1.IPClaim, records []v1alpha1.IPAllocation) {
	GinkgoHelper()
	recordsByName := map[string]v1alpha1.IPAllocation{}
	for _, r := range records {
		recordsByName[r.Namespace+"/"+r.Name] = r
	}
	for _, c := range claims {
		if c.Spec.AllocationName == "" {
			continue
		}
		r, ok := recordsByName[c.Namespace+"/"+c.Spec.AllocationName]
		Expect(ok).To(BeTrue(), "claim %s without its record %s", c.Name, c.Spec.AllocationName)
		Expect(r.Spec.CIDR).To(Equal(c.Spec.CIDR))
		Expect(r.Spec.ClaimRef.Name).To(Equal(c.Name))
	}
}
