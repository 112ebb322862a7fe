package allocator

import (
	"context"
	"math/rand/v2"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
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

// Parts holds the parts of allocation, all of the same ledger. A type that uses several of them
// embeds it.
type Parts struct {
	// Ledger is the view of all allocations.
	Ledger *ledger.Ledger
	// Catalogue holds the pools, classes, namespaces and Clusters.
	Catalogue *inventory.Catalogue
	// Queue holds the waiting claims and pools.
	Queue *queue.Queue
	// Allocator creates and deletes IPAllocations.
	Allocator *Allocator
	// Metrics count the work of the parts, and of the code that uses them.
	Metrics *metrics.Instruments
	// History records the history of blocks and requests, while its Run runs.
	History *history.Recorder
	// Tracer starts a span for each request, pass and allocation. Nil: no spans.
	Tracer *tracing.Tracer
}

// PartsOptions holds the options of Parts. NewParts sets all options of a part that name another
// part.
type PartsOptions struct {
	// Ledger is fed by the caller.
	Ledger *ledger.Ledger
	// Client reads and writes without a cache, so that a read returns the state of a quorum of
	// etcd.
	Client client.Client
	// Namespace is the operator's namespace, in which the records of pools live.
	Namespace string
	// PlatformProject is the platform's own project; empty: there is none.
	PlatformProject string
	// DefaultFamily is the family of requests that name no class, no pool and no family. Default:
	// IPv4.
	DefaultFamily ipam.Family
	// UnclaimedLimit bounds the unclaimed records of a namespace, and WaitingLimit its waiting
	// claims; 0: any number.
	UnclaimedLimit, WaitingLimit int
	// WatchNamespace is the only namespace whose claims this operator's controllers serve; empty:
	// all namespaces.
	WatchNamespace string
	// Sinks receive the history, by their names, and Replica is the name of this process in it.
	Sinks   map[string]history.Sink
	Replica string
	// Clock paces live lists, and measures durations. Nil: the real one.
	Clock clock.PassiveClock
	Log   logr.Logger
	// Tracer starts the spans of all parts. Nil: no spans.
	Tracer *tracing.Tracer
}

// NewParts returns a catalog, a queue and an allocator of one ledger. Until Close the caller must
// run the queue's Run, and call Feed and FeedClaims.
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

// Resolve returns the result of Catalogue.Resolve once everything has been seen; before, the error
// is ipam.ErrNotSynced.
func (p Parts) Resolve(ctx context.Context, req ipam.Request) (inventory.Resolution, error) {
	if err := p.Queue.Synced(); err != nil {
		return inventory.Resolution{}, err
	}
	res, err := p.Catalogue.Resolve(req)
	traceResolution(ctx, req, res, err)
	return res, err
}

// PoolOrder returns the order for a pool's own CIDR, in its parent or its routing domain. The
// caller sets the origin and the holder's UID. The error is a *ipam.MissingError or a
// *ipam.PolicyError about the parent.
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

// Turns returns a source that enqueues the holders of a kind when it is their turn in the queue.
func (p Parts) Turns(kind string) source.Source {
	return kubeutil.Subscription(func(_ context.Context, q kubeutil.Queue) (stop func()) {
		return p.Queue.OnTurn(kind, func(h ipam.Holder) { q.Add(kubeutil.RequestFor(h.Namespace, h.Name)) })
	})
}

// EnqueueWaiting enqueues the holders of a kind that wait for a change of the catalog such as c.
func (p Parts) EnqueueWaiting(q kubeutil.Queue, kind string, c inventory.Change) {
	for _, holder := range p.Queue.WaitingFor(c) {
		if holder.Kind == kind {
			q.Add(kubeutil.RequestFor(holder.Namespace, holder.Name))
		}
	}
}

// Feed keeps the catalog up to date from the informers of a cache. The caller calls it once, before
// the cache is started; FeedClaims does the rest.
func (p Parts) Feed(ctx context.Context, from ctrlcache.Cache) error {
	sources, err := p.Catalogue.Feed(ctx, from)
	if err != nil {
		return err
	}
	for _, synced := range sources {
		p.Queue.FedBy(synced)
	}
	p.Allocator.claims.await()
	return nil
}

// FeedClaims keeps the queue and the ledger's knowledge of claims up to date from the informer of a
// cache. There may be a hundred thousand claims, and few of them wait: FeedClaims lists the waiting
// ones first, so that blocks can be handed out before the others are known, and no waiter is
// overtaken. It returns when all claims are known, or ctx is done. The caller calls it once, after
// Feed.
func (p Parts) FeedClaims(ctx context.Context, live client.Reader, from ctrlcache.Cache) {
	p.Allocator.claims.feed(ctx, live, from)
}

// KnowsClaims reports whether every IPClaim has been seen once. Until then a cache of claims blocks
// its readers, and claimed records may seem unclaimed.
func (p Parts) KnowsClaims() bool { return p.Allocator.claims.known() }

// Snapshot holds the objects that a process without watches has listed.
type Snapshot struct {
	// Objects are pools, classes, and the metadata of namespaces.
	Objects []client.Object
	// Records holds all records, and Unreadable the readable parts of other IPAllocations.
	Records, Unreadable []ipam.Record
	// Waiting holds the IPClaims that hold no block, and Waiters the waiters other than those
	// claims and the pools.
	Waiting []v1alpha1.IPClaim
	Waiters []queue.Waiter
}

// LoadParts returns parts with a snapshot, for a process that asks questions and records nothing.
// The caller closes them.
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

// Suppose returns the block that Allocate would give now, and records it in the view alone, as if
// the holder had it: later questions are answered accordingly. The parts must have been made by
// LoadParts.
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

// Load fills new parts with a snapshot, so that Resolve and Consider answer like those of an
// operator that has seen the same objects. Load replaces Feed and FeedClaims.
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
