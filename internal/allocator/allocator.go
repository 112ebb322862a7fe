package allocator

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// Options are what an Allocator is given when it is made.
type Options struct {
	// Ledger is the view, fed by the process that builds the allocator.
	Ledger *ledger.Ledger
	// Catalogue is of the same ledger.
	Catalogue *inventory.Catalogue
	// Queue is of the same ledger and catalogue.
	Queue *queue.Queue
	// Client reads and writes without a cache: what it reads is what a quorum
	// of etcd says.
	Client client.Client
	// UnclaimedLimit bounds the records of a namespace, and of a project, that no claim, and no pool of
	// its own, has taken.
	UnclaimedLimit int
	// Metrics count allocations.
	Metrics *metrics.Instruments
	// History says what became of blocks; nil: nobody.
	History *history.Recorder
	// Tracer has a span for each allocation, its steps, and each release. Nil: none.
	Tracer *tracing.Tracer
	// Log says of what fails in the background.
	Log logr.Logger
}

// AttemptsAtOnce is how many records a replica makes at the same time for claims
// and pools that do not exist yet. Where more come than the API server has room for,
// none of them would be confirmed in time, and each would cost it a deletion too. At
// 10 ms a record it is enough for 3,200 claims a second.
const AttemptsAtOnce = 32

// Allocator hands out blocks.
type Allocator struct {
	ledger    *ledger.Ledger
	catalogue *inventory.Catalogue
	queue     *queue.Queue
	client    client.Client
	limit     int
	metrics   *metrics.Instruments
	history   *history.Recorder
	tracer    *tracing.Tracer
	log       logr.Logger
	// attempts bounds the attempts for holders that do not exist yet.
	attempts *semaphore.Weighted
	claims   *claims
	// taken has the version of each record that takeOver wrote, by its UID, while it exists.
	taken sync.Map
	// background counts records that are being given up.
	background sync.WaitGroup
}

// New is an allocator. It deletes records that were created although their
// creation had seemed to fail.
func New(o Options) *Allocator {
	a := &Allocator{
		ledger: o.Ledger, catalogue: o.Catalogue, queue: o.Queue, client: o.Client,
		limit: o.UnclaimedLimit, metrics: o.Metrics, history: o.History, tracer: o.Tracer, log: o.Log,
		attempts: semaphore.NewWeighted(AttemptsAtOnce),
		claims:   newClaims(o.Ledger, o.Queue, o.Log),
	}
	a.ledger.Listen(func(c ledger.Change) {
		switch c.Kind {
		case ledger.Abandoned:
			a.discard(context.Background(), c.Record)
		case ledger.Removed:
			a.taken.Delete(c.Record.UID)
		}
	})
	return a
}

// synced is ipam.ErrNotSynced until all that decisions rest on has been seen
// once: records, pools, classes and the claims that wait. Nothing is handed out
// before.
func (a *Allocator) synced() error { return a.queue.Synced() }

// Close waits until the records that are being given up are gone.
func (a *Allocator) Close() { a.background.Wait() }
