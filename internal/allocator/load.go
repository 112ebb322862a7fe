package allocator

import (
	"math/rand/v2"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// Snapshot is what a process has listed that does not watch.
type Snapshot struct {
	// Objects are pools, classes, and the metadata of namespaces.
	Objects []client.Object
	// Records are all that there are, and Unreadable what is read of other IPAllocations.
	Records, Unreadable []ipam.Record
	// Waiting are the IPClaims that hold no block, and Waiters what waits beside them and
	// the pools.
	Waiting []v1alpha1.IPClaim
	Waiters []queue.Waiter
}

// LoadParts makes parts of a snapshot, for a process that asks questions and records
// nothing. The caller closes them.
func LoadParts(s Snapshot) (Parts, error) {
	operator := ""
	for i := range s.Records {
		if s.Records[i].Purpose == ipam.PurposePool { // it is in the operator's namespace
			operator = s.Records[i].Name.Namespace
		}
	}
	parts := NewParts(PartsOptions{
		Ledger:    ledger.New(ledger.Options{Clock: clock.RealClock{}, Random: rand.New(rand.NewPCG(0, 0)), Log: logr.Discard()}),
		Namespace: operator, Log: logr.Discard(),
	})
	return parts, parts.Load(s)
}

// Suppose returns the block that Allocate would give now, and enters it into the view as if
// it had been recorded: what is asked next is answered as if the holder had it. It is for
// parts that were made by LoadParts.
func (p Parts) Suppose(order Order) (ipam.Record, error) {
	record, err := p.Allocator.Preview(order)
	if err != nil {
		return ipam.Record{}, err
	}
	record.UID, record.Version = "supposed/"+record.Name.String(), "0"
	record.Project = p.Allocator.projectOf(order.Holder)
	p.Ledger.Enter(record)
	return record, nil
}

// Load fills new parts with a snapshot, so that Resolve and Consider answer as those of an
// operator do that has seen the same. It takes the place of Feed and FeedClaims.
func (p Parts) Load(s Snapshot) error {
	for _, obj := range s.Objects {
		p.Catalogue.Enter(obj)
	}
	p.Ledger.Load(s.Records, s.Unreadable)
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
