package allocator

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// Parts are what allocation consists of, each of which is of the same ledger. They are
// for embedding in what uses several of them.
type Parts struct {
	// Ledger is the view of all allocations.
	Ledger *ledger.Ledger
	// Catalogue is pools, classes, namespaces and Clusters.
	Catalogue *inventory.Catalogue
	// Queue is the claims and pools that wait.
	Queue *queue.Queue
	// Allocator creates and deletes IPAllocations.
	Allocator *Allocator
	// Metrics count what the parts, and those that use them, do.
	Metrics *metrics.Instruments
	// History records what becomes of blocks and requests, while its Run runs.
	History *history.Recorder
	// Tracer has a span for each request, pass and allocation. Nil: none.
	Tracer *tracing.Tracer
}

// PartsOptions are what Parts are given when they are made. Of the options of each part,
// all that name another part are set by NewParts.
type PartsOptions struct {
	// Ledger is fed by the caller.
	Ledger *ledger.Ledger
	// Client reads and writes without a cache: what it reads is what a quorum of etcd
	// says.
	Client client.Client
	// Namespace is the operator's, where the records of pools live.
	Namespace string
	// PlatformProject is the platform's own project; empty: none is.
	PlatformProject string
	// DefaultFamily is that of requests that name no class, no pool and no family.
	// Default: IPv4.
	DefaultFamily ipam.Family
	// UnclaimedLimit bounds the unclaimed records of a namespace, and WaitingLimit its
	// claims that wait; 0: any number.
	UnclaimedLimit, WaitingLimit int
	// WatchNamespace is the only namespace whose claims this operator's controllers
	// serve; empty: of all.
	WatchNamespace string
	// Sinks take the history, by their names, and Replica is the name of this process in it.
	Sinks   map[string]history.Sink
	Replica string
	// Clock paces live lists, and measures durations. Nil: the real one.
	Clock clock.PassiveClock
	Log   logr.Logger
	// Tracer starts the spans of all parts. Nil: none.
	Tracer *tracing.Tracer
}

// NewParts makes a catalogue, a queue and an allocator of one ledger. Until Close the
// queue's Run is to run, and Feed and FeedClaims are to be called.
func NewParts(o PartsOptions) Parts {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	counted := metrics.New(o.Clock)
	recorder := history.New(history.Options{
		Sinks: o.Sinks, Replica: o.Replica, Clock: o.Clock, Lost: counted.HistoryLost, Log: o.Log.WithName("history"),
	})
	known := inventory.New(inventory.Options{
		Ledger: o.Ledger, Namespace: o.Namespace, PlatformProject: o.PlatformProject, DefaultFamily: o.DefaultFamily, Clock: o.Clock,
	})
	waiting := queue.New(queue.Options{Ledger: o.Ledger, Catalogue: known, Limit: o.WaitingLimit, WatchNamespace: o.WatchNamespace, Log: o.Log})
	return Parts{
		Ledger: o.Ledger, Catalogue: known, Queue: waiting,
		Allocator: New(Options{Ledger: o.Ledger, Catalogue: known, Queue: waiting, Client: o.Client, UnclaimedLimit: o.UnclaimedLimit, Metrics: counted, History: recorder, Tracer: o.Tracer, Log: o.Log}),
		Metrics:   counted, History: recorder, Tracer: o.Tracer,
	}
}

// Close waits until the records that are being given up are gone, and ends the queue's Run.
func (p Parts) Close() {
	p.Queue.Close()
	p.Allocator.Close()
}

// Resolve is Catalogue.Resolve once everything has been seen; before it is
// ipam.ErrNotSynced.
func (p Parts) Resolve(ctx context.Context, req ipam.Request) (inventory.Resolution, error) {
	if err := p.Queue.Synced(); err != nil {
		return inventory.Resolution{}, err
	}
	res, err := p.Catalogue.Resolve(req)
	traceResolution(ctx, req, res, err)
	return res, err
}

// PoolOrder is the order for a pool's own CIDR, in its parent or its routing
// domain. Origin and holder's UID are for the caller to set. The error is a
// *ipam.MissingError or a *ipam.PolicyError about the parent.
func (p Parts) PoolOrder(pool ipam.Pool) (Order, error) {
	if err := p.Queue.Synced(); err != nil {
		return Order{}, err
	}
	order := Order{Holder: convert.HolderOfPool(pool.Key)}
	if place, ok := p.Queue.Place(order.Holder); ok {
		order.Waiting = place
	}
	var err error
	order.Resolution, err = p.Catalogue.ResolvePool(pool)
	return order, err
}

// Backoff returns a Backoff for a controller of a name, whose passes are counted.
func (p Parts) Backoff(controller string) *kubeutil.Backoff {
	return kubeutil.NewBackoff(clock.RealClock{}, func(result kubeutil.PassResult) { p.Metrics.Passed(controller, string(result)) })
}

// Turns is a source for a controller: it enqueues the holders of a kind when it is their
// turn in the queue.
func (p Parts) Turns(kind string) source.Source {
	return kubeutil.Subscription(func(_ context.Context, q kubeutil.Queue) (stop func()) {
		return p.Queue.OnTurn(kind, func(h ipam.Holder) { q.Add(kubeutil.RequestFor(h.Namespace, h.Name)) })
	})
}

// EnqueueWaiting enqueues the holders of a kind that wait for what has changed in the
// catalogue.
func (p Parts) EnqueueWaiting(q kubeutil.Queue, kind string, c inventory.Change) {
	for _, holder := range p.Queue.WaitingFor(c) {
		if holder.Kind == kind {
			q.Add(kubeutil.RequestFor(holder.Namespace, holder.Name))
		}
	}
}
