package allocator

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// Options are what an Allocator is given at its making.
type Options struct {
	// Ledger is the picture, fed by whoever wires the process.
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
	// Log is for what no caller is told: giving up records in the background.
	Log logr.Logger
}

// The longest that the steps of a request take. Together they stay below the
// five seconds that the API server gives the webhook.
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
	queue     *Queue
	namespace string
	limit     int
	log       logr.Logger
	// attempts bounds the attempts for holders that do not exist yet.
	attempts *semaphore.Weighted
	// wake is the pools where somebody who waits may now be served.
	wake workqueue.TypedInterface[ipam.PoolKey]
	// turns is who serves holders of a kind when it is their turn.
	turnsLock sync.Mutex
	turns     map[string]func(ipam.Holder)
	// fed says of each source whether its first list is complete.
	fedLock sync.RWMutex
	fed     []func() bool
	// claims says whether every IPClaim has been seen once, foreseen whether those
	// that wait have been.
	claims   func() bool
	foreseen bool
	// background counts records that are being given up.
	background sync.WaitGroup
}

// New is an allocator. It deletes records that were created although their
// creation had seemed to fail.
func New(o Options) *Allocator {
	a := &Allocator{
		ledger: o.Ledger, catalogue: o.Catalogue, client: o.Client, queue: NewQueue(),
		namespace: o.Namespace, limit: o.UnboundLimit, log: o.Log,
		attempts: semaphore.NewWeighted(AttemptsAtOnce),
		wake:     workqueue.NewTyped[ipam.PoolKey](),
		turns:    map[string]func(ipam.Holder){}, claims: func() bool { return true },
	}
	a.fed = append(a.fed, a.ledger.Synced)
	a.ledger.Listen(func(c ledger.Change) {
		switch c.Kind {
		case ledger.Disowned:
			a.discard(c.Record)
		case ledger.Removed:
			a.wake.Add(c.Pool)
		case ledger.Added, ledger.Changed:
			if c.Record.Purpose == ipam.ForPool { // that pool may be ready now
				a.wake.Add(PoolOf(c.Record.Holder))
			}
		}
	})
	return a
}

// Ledger is the picture that this allocator works on.
func (a *Allocator) Ledger() *ledger.Ledger { return a.ledger }

// Catalogue is what this allocator knows of pools and classes.
func (a *Allocator) Catalogue() *Catalogue { return a.catalogue }

// Queue is the claims that wait.
func (a *Allocator) Queue() *Queue { return a.queue }

// Close waits until the records that are being given up are gone.
func (a *Allocator) Close() {
	a.wake.ShutDown()
	a.background.Wait()
}

// PoolOf is the pool that is a holder: the inverse of HolderOfPool.
func PoolOf(h ipam.Holder) ipam.PoolKey {
	return ipam.PoolKey{Kind: ipam.PoolKind(h.Kind), Namespace: h.Namespace, Name: h.Name}
}

// recordOfPool is the name of a pool's own record: ippool.<name> or
// localippool.<namespace>.<name>. The name of a namespace has no dot, so no two
// pools have the same. Where that is too long for a name, it begins with a digest
// instead, and with what none of the others begins with.
func (a *Allocator) recordOfPool(pool ipam.PoolKey) ipam.Name {
	kind, name := "ippool", pool.Name
	if pool.Kind == ipam.KindLocalPool {
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
