package allocator

import (
	"math/rand/v2"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// Snapshot holds the objects that a process without watches has listed.
type Snapshot struct {
	// Objects are pools, classes, and the metadata of namespaces.
	Objects []client.Object
	// Records holds all records, and Unreadable the readable parts of other IPAllocations.
	Records, Unreadable []ipam.Record
	// Waiting holds the IPClaims without block, Waiters the others that wait, except pools.
	Waiting []v1alpha1.IPClaim
	Waiters []queue.Waiter
}

// Simulator is an Allocator that has seen a snapshot, for a process that asks questions and records
// nothing. Its methods must not be called concurrently.
type Simulator struct{ *Allocator }

// NewSimulator returns a simulator of a snapshot. The caller closes it.
func NewSimulator(s Snapshot) (*Simulator, error) {
	view := ledger.New(ledger.Options{Clock: clock.RealClock{}, Random: rand.New(rand.NewPCG(0, 0)), Log: logr.Discard()})
	o := Options{Metrics: metrics.New(clock.RealClock{}), Log: logr.Discard()}
	sim := &Simulator{New(view, inventory.Options{Namespace: s.operatorNamespace()}, queue.Options{}, o)}
	return sim, sim.loadSnapshot(s)
}

// operatorNamespace returns the namespace of the records of pools.
func (s Snapshot) operatorNamespace() string {
	for i := range s.Records {
		if s.Records[i].Purpose == ipam.PurposePool {
			return s.Records[i].Name.Namespace
		}
	}
	return ""
}

// loadSnapshot shows the snapshot to all parts, in place of Feed and FeedClaims.
func (s *Simulator) loadSnapshot(snapshot Snapshot) error {
	for _, obj := range snapshot.Objects {
		s.Catalog.RecordObject(obj)
	}
	s.Ledger.Load(snapshot.Records, snapshot.Unreadable)
	if err := s.Queue.Synced(); err != nil {
		return err
	}
	for i := range snapshot.Waiting {
		s.onClaimUpdate(&snapshot.Waiting[i])
	}
	for _, w := range snapshot.Waiters {
		s.Queue.Wait(w)
	}
	return nil
}

// Suppose returns the block that Allocate would give now, and records it in the view alone for
// later questions.
func (s *Simulator) Suppose(order Order) (ipam.Record, error) {
	record, err := s.Preview(order)
	if err != nil {
		return ipam.Record{}, err
	}
	record.UID, record.Version = "supposed/"+record.Name.String(), "0"
	record.Project = s.projectOf(order.Holder)
	s.Ledger.PutRecord(record)
	return record, nil
}
