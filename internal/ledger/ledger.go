package ledger

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// Ledger is the view of what is held. The zero value is not usable.
type Ledger struct {
	options Options

	mu     sync.Mutex
	synced bool
	books  map[ipam.PoolKey]*book
	// pruned is the highest count of frees of a book that was dropped: a book that is
	// made again goes on from there, so that its counts only rise.
	pruned int
	// The records: of a UID and of a name there is one.
	byUID    index[string]
	byName   index[ipam.Name]
	byHolder index[ipam.Holder]
	bySticky index[ipam.Name]
	// unreadable are the IPAllocations that are no records.
	unreadable unreadable
	// holds are this process's own blocks that are not confirmed, by the name
	// of the record.
	holds map[ipam.Name]*Hold
	// abandoned are names of records whose creation failed ambiguously, with the
	// time when that was.
	abandoned map[ipam.Name]time.Time
	// claimsKnown is whether Claimed was called for every claim that there is.
	claimsKnown bool
	// named are what live claims name and has no record yet, or none any more.
	named map[ipam.Name]bool
	// unclaimed counts records and holds that no live claim or local pool names, by
	// the namespace and the project of their holders, in each pool and over all pools.
	unclaimed map[share]ipam.Usage
	// recorded and held count what projects have: by records, and by holds that have
	// no record in the view yet.
	recorded, held map[account]ipam.Usage
	// relist ends the current watch, so that a new one begins with a list.
	relist func()
	began  time.Time
	// source is that of the records; nil before Run.
	source *kubeutil.VerifiedSource
	// revision is that of the last event or list in the view.
	revision string
	// outdated is whether the store has gone back since the last list.
	outdated  bool
	relists   int
	rollbacks int
	lists     int
	unread    int
	listeners []*listener
	onFree    []func(ipam.PoolKey, netip.Prefix)
}

// Options are what a Ledger is given at its making.
type Options struct {
	// Clock measures how long a record has not been seen.
	Clock clock.WithTicker
	// Random picks blocks of pools with strategy Random. Used under the lock.
	Random *rand.Rand
	// Silence is how long an acknowledged record may not be seen before the
	// watch is taken for dead and begun anew.
	Silence time.Duration
	// Log says that the watch is begun anew.
	Log logr.Logger
}

// now is the time; the zero time where there is no clock.
func (o Options) now() time.Time {
	if o.Clock == nil {
		return time.Time{}
	}
	return o.Clock.Now()
}

// New is a ledger that has seen nothing.
func New(options Options) *Ledger {
	return &Ledger{
		options:  options,
		books:    map[ipam.PoolKey]*book{},
		byUID:    newIndex(linkUID, func(e *entry) string { return e.uid }),
		byName:   newIndex(linkName, (*entry).key),
		byHolder: newIndex(linkHolder, (*entry).holder),
		bySticky: newIndex(linkSticky, (*entry).stickyKey),

		unreadable: newUnreadable(),

		holds:     map[ipam.Name]*Hold{},
		abandoned: map[ipam.Name]time.Time{},
		named:     map[ipam.Name]bool{},
		unclaimed: map[share]ipam.Usage{},
		recorded:  map[account]ipam.Usage{},
		held:      map[account]ipam.Usage{},
		relist:    func() {},
	}
}

// Synced reports whether the first list is complete.
func (l *Ledger) Synced() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.synced
}
