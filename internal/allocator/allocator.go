package allocator

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// Options are what an Allocator is given at its making.
type Options struct {
	// Ledger is the view, fed by the process that builds the allocator.
	Ledger *ledger.Ledger
	// Catalogue is fed likewise.
	Catalogue *Catalogue
	// Client reads and writes without a cache: what it reads is what a quorum
	// of etcd says.
	Client client.Client
	// Namespace is the operator's, where the records of pools live.
	Namespace string
	// UnboundLimit bounds the records of a namespace that no claim, and no pool of
	// its own, has taken.
	UnboundLimit int
	// DefaultFamily is that of requests that name no class, no pool and no family.
	// Default: IPv4.
	DefaultFamily ipam.Family
	// WaitingLimit bounds the claims of a namespace that wait; 0: any number.
	WaitingLimit int
	// WatchNamespace is the only namespace whose claims this operator's controllers
	// serve; empty: of all.
	WatchNamespace string
	// Clock paces live lists. Nil: the real one.
	Clock clock.PassiveClock
	// Log is for what no caller is told: giving up records in the background.
	Log logr.Logger
}

// The longest that the steps of a request take. At admission the deadline of the request
// (webhooks.Graceful) ends whatever would exceed it.
const (
	// confirmWithin bounds the whole way from finding to confirming.
	confirmWithin = 3500 * time.Millisecond
	// beginWithin bounds the wait until the API server may be asked: what is left
	// must do for record and confirmation.
	beginWithin = 1500 * time.Millisecond
	// releaseWithin bounds the wait for a release that is on its way.
	releaseWithin = 250 * time.Millisecond
	// discardWithin bounds giving up a record; what is not done by then is left
	// to the collection of orphans.
	discardWithin = 30 * time.Second
)

// AttemptsAtOnce is how many records a replica makes at the same time for claims
// and pools that do not exist yet. Where more come than the API server has room for,
// none of them would be confirmed in time, and each would cost it a deletion too. At
// 10 ms a record it is enough for 3,200 claims a second.
const AttemptsAtOnce = 32

// Allocator hands out blocks.
type Allocator struct {
	ledger    *ledger.Ledger
	catalogue *Catalogue
	client    client.Client
	queue     *queue.Queue
	namespace string
	// watched is the only namespace whose claims are served; empty: all are.
	watched string
	limit   int
	// defaultFamily is that of requests that name no class, no pool and no family.
	defaultFamily ipam.Family
	log           logr.Logger
	// attempts bounds the attempts for holders that do not exist yet.
	attempts *semaphore.Weighted
	// wake is the pools where somebody who waits may now be served.
	wake workqueue.TypedInterface[ipam.PoolKey]
	// turns is who serves holders of a kind when it is their turn.
	turnsLock sync.Mutex
	turns     map[string]*turnHandler
	// fed says of each source whether its first list is complete.
	fedLock sync.RWMutex
	fed     []func() bool
	// claims reports whether every IPClaim has been seen once, waitersSeen whether those
	// that wait have been.
	claims      func() bool
	waitersSeen bool
	// isResolved is whether what the waiters want has been resolved since everything was
	// seen once; resolving is held while it is found out and noted.
	resolving  sync.Mutex
	isResolved atomic.Bool
	// live is what was read past the caches.
	live *liveReads
	// background counts records that are being given up.
	background sync.WaitGroup
}

// New is an allocator. It deletes records that were created although their
// creation had seemed to fail.
func New(o Options) *Allocator {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	a := &Allocator{
		ledger: o.Ledger, catalogue: o.Catalogue, client: o.Client, queue: queue.New(o.WaitingLimit),
		live: newLiveReads(o.Clock), namespace: o.Namespace, watched: o.WatchNamespace, limit: o.UnboundLimit, log: o.Log,
		defaultFamily: cmp.Or(o.DefaultFamily, ipam.IPv4),
		attempts:      semaphore.NewWeighted(AttemptsAtOnce),
		wake:          workqueue.NewTyped[ipam.PoolKey](),
		turns:         map[string]*turnHandler{}, claims: func() bool { return true },
	}
	a.fed = append(a.fed, a.ledger.Synced)
	a.catalogue.Listen(a.changed)
	a.ledger.OnFree(func(pool ipam.PoolKey, block netip.Prefix) {
		a.queue.Freed(pool, block)
		a.wake.Add(pool)
	})
	a.ledger.Listen(func(c ledger.Change) {
		switch c.Kind {
		case ledger.Abandoned:
			a.discard(c.Record)
		case ledger.Removed:
			a.resumeLimited(c.Record)
		case ledger.Added, ledger.Changed:
			if c.Record.Purpose == ipam.PurposePool { // that pool may be ready now
				a.wake.Add(PoolOf(c.Record.Holder))
			}
		}
	})
	return a
}

// Ledger is the view that this allocator works on.
func (a *Allocator) Ledger() *ledger.Ledger { return a.ledger }

// Catalogue is what this allocator knows of pools and classes.
func (a *Allocator) Catalogue() *Catalogue { return a.catalogue }

// Queue is the claims that wait.
func (a *Allocator) Queue() *queue.Queue { return a.queue }

// Close waits until the records that are being given up are gone.
func (a *Allocator) Close() {
	a.wake.ShutDown()
	a.background.Wait()
}

// PoolOf is the pool that is a holder: the inverse of HolderOfPool.
func PoolOf(h ipam.Holder) ipam.PoolKey {
	return ipam.PoolKey{Kind: ipam.PoolKind(h.Kind), Namespace: h.Namespace, Name: h.Name}
}

// RecordOfPool is the name of a pool's own record: ippool.<name> or
// localippool.<namespace>.<name>. The name of a namespace has no dot, so no two
// pools have the same. Where that is too long for a name, it begins with a digest
// instead, and with what none of the others begins with.
func (a *Allocator) RecordOfPool(pool ipam.PoolKey) ipam.Name {
	kind, name := "ippool", pool.Name
	if pool.Kind == ipam.PoolKindLocalIPPool {
		kind, name = "localippool", pool.Namespace+"."+pool.Name
	}
	full := kind + "." + name
	if len(full) > longestName {
		full = kind + "-" + digest(20, kind, name) + "." + name
		full = strings.TrimRight(full[:longestName], ".-")
	}
	return ipam.Name{Namespace: a.namespace, Name: full}
}

// longestName is how long the name of an object may be (RFC 1123, as Kubernetes
// reads it).
const longestName = 253

// digest is a name's worth of the SHA-256 of some strings: of so many bytes, a
// multiple of 5, which make 8 characters each.
func digest(bytes int, of ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(of, "\x00")))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:bytes]))
}

// randomSuffix has 8 characters of the alphabet that Kubernetes uses for
// generated names: of 27, so one in 280 billion is the same as another.
func randomSuffix() string { return utilrand.String(8) }
