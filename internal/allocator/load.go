package allocator

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// Snapshot is what a process has listed that does not watch.
type Snapshot struct {
	// Objects are pools, classes, and the metadata of namespaces.
	Objects []client.Object
	// Records are all that there are.
	Records []ipam.Record
	// Waiting are the IPClaims that hold no block, and Waiters what waits beside them and
	// the pools.
	Waiting []v1alpha1.IPClaim
	Waiters []queue.Waiter
}

// Load fills new parts with a snapshot, so that Resolve and Consider answer as those of an
// operator do that has seen the same. It takes the place of Feed and FeedClaims.
func (p Parts) Load(s Snapshot) error {
	for _, obj := range s.Objects {
		p.Catalogue.Enter(obj)
	}
	p.Ledger.Load(s.Records)
	if err := p.Queue.Synced(); err != nil {
		return err
	}
	for i := range s.Waiting {
		p.Allocator.claims.take(&s.Waiting[i])
	}
	for _, w := range s.Waiters {
		p.Queue.Wait(w)
	}
	return nil
}
