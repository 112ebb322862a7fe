// Package replica builds the parts of one replica of the operator for tests.
package replica

import (
	"runtime"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fcache "k8s.io/client-go/tools/cache/testing"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// Options holds the settings of a Replica that tests vary.
type Options struct {
	// Ledger is fed by the test. Nil: one that is never fed.
	Ledger *ledger.Ledger
	Client client.Client
	// Namespace is the operator's.
	Namespace                    string
	UnclaimedLimit, WaitingLimit int
	Sinks                        map[string]history.Sink
	Clock                        clock.PassiveClock
	// InCluster has the pools of the in-cluster provider's kinds read, too.
	InCluster bool
}

// Replica holds the parts of one replica.
type Replica struct {
	Ledger    *ledger.Ledger
	Catalog   *inventory.Catalog
	Queue     *queue.Queue
	Allocator *allocator.Allocator
	Metrics   *metrics.Instruments
	History   *history.Recorder
}

// New returns the parts of a replica, built as the operator builds them.
func New(o Options) Replica {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Ledger == nil {
		o.Ledger = ledger.New(ledger.Options{})
	}
	r := Replica{Ledger: o.Ledger, Metrics: metrics.New(o.Clock)}
	r.History = history.New(history.Options{Sinks: o.Sinks, Clock: o.Clock, Lost: r.Metrics.HistoryLost, Log: logr.Discard()})
	catalog, waiting := inventory.Options{Namespace: o.Namespace, Clock: o.Clock, InCluster: o.InCluster}, queue.Options{Limit: o.WaitingLimit}
	r.Allocator = allocator.New(o.Ledger, catalog, waiting, allocator.Options{
		Client: o.Client, UnclaimedLimit: o.UnclaimedLimit, PoolRanges: true, Metrics: r.Metrics, History: r.History, Log: logr.Discard(),
	})
	r.Catalog, r.Queue = r.Allocator.Catalog, r.Allocator.Queue
	return r
}

// WithRecords returns a replica with a view of these records, which is fed until the test ends.
func WithRecords(t testing.TB, o Options, records ...ipam.Record) Replica {
	t.Helper()
	o.Ledger = ledger.New(ledger.Options{Clock: clock.RealClock{}, Silence: time.Minute})
	seen := make(chan struct{}, len(records))
	o.Ledger.Follow(func(ledger.Change) { seen <- struct{}{} })
	from := fcache.NewFakeControllerSource()
	for _, record := range records {
		obj := convert.Allocation(record)
		obj.UID = types.UID(record.UID)
		if record.Terminating {
			obj.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}
		from.Add(obj)
	}
	go o.Ledger.Run(t.Context(), from, &v1alpha1.IPAllocation{})
	for range records {
		<-seen
	}
	for !o.Ledger.IsWatching() { // the watch begins just after the list
		runtime.Gosched()
	}
	return New(o)
}
