package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Hold represents a block that this process keeps off its own other requests until the block is
// recorded and confirmed. End it with Confirm, Drop or Abandon.
type Hold struct {
	Block netip.Prefix
	// Pool is the pool as it was when the block was found.
	Pool ipam.Pool

	ledger *Ledger
	ask    Ask
	entry  *entry
	// resolved is closed when the watch has shown the record. seen then has the UID of the record,
	// and refusal the reason why the block is not ours; both under the ledger's lock.
	resolved chan struct{}
	seen     string
	refusal  error
	// acknowledged is the time when the API server had stored the record; zero before that. Under
	// the ledger's lock.
	acknowledged time.Time
	// former is the UID of a record of that name that was in the view when the block was found, and
	// that is going: its events do not concern our record.
	former string
	// uncounted reports that the hold is no longer counted for its project.
	uncounted bool
}

// Project returns the project for which the block counts.
func (h *Hold) Project() string { return h.ask.Project }

// Gateway returns the gateway that is handed out with the block.
func (h *Hold) Gateway() netip.Addr { return h.entry.alike.Value().gateway }

// Hold finds a free block and keeps it. There is one hold for a record's name at a time; a second
// request for the name gets ipam.ErrUnconfirmed. Other errors: ipam.ErrNotSynced, ErrOutOfTurn,
// *ipam.UnclaimedError, *UnknownPoolError, *ipam.LimitError, *ipam.ExhaustedError,
// *ipam.TakenError.
func (l *Ledger) Hold(ask Ask) (*Hold, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holds[ask.Record] != nil {
		return nil, fmt.Errorf("another request for %s is under way: %w", ask.Record, ipam.ErrUnconfirmed)
	}
	block, b, err := l.findInTurn(ask)
	if err != nil {
		return nil, err
	}
	h := &Hold{Block: block, Pool: b.pool, ledger: l, ask: ask, resolved: make(chan struct{})}
	h.Pool.Key = ask.Pool // also if the pool is not known
	h.entry = newEntry(ipam.Record{Name: ask.Record, Block: block, Pool: ask.Pool, Holder: ask.Holder, Class: ask.Class, Project: ask.Project, Gateway: ask.gateway(b, block)})
	h.entry.hold = h
	if former := l.byName.one(ask.Record); former != nil {
		h.former = former.uid
	}
	l.books[ask.Pool] = b
	b.take(h.entry)
	l.countUnclaimed(h.entry, ipam.Usage.Add)
	l.countUsage(h.entry, ipam.Usage.Add)
	l.holds[ask.Record] = h
	return h, nil
}

// Peek returns the block that Hold would find, without holding it.
func (l *Ledger) Peek(ask Ask) (netip.Prefix, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	block, _, err := l.findInTurn(ask)
	return block, err
}

// passOver bounds the number of blocks that findInTurn passes over because waiters ask for them.
// Each costs about as much as finding the first block.
const passOver = 64

// findInTurn finds a block that Ask.Turn lets the holder have.
func (l *Ledger) findInTurn(ask Ask) (netip.Prefix, *book, error) {
	block, b, err := l.find(ask)
	if err != nil || ask.Turn == nil {
		return block, b, err
	}
	for range passOver {
		may, wanted := ask.Turn.MayTake(Room{l, b}, block)
		if may {
			return block, b, nil
		}
		if !wanted.IsValid() || ask.Block.IsValid() {
			break
		}
		block, _ = b.space.FindFrom(ahead(wanted, 1), ask.Bits) // there is one: it wraps round
	}
	return netip.Prefix{}, nil, ErrOutOfTurn
}

func (l *Ledger) find(ask Ask) (netip.Prefix, *book, error) {
	if !l.synced {
		return netip.Prefix{}, nil, ipam.ErrNotSynced
	}
	b := l.books[ask.Pool]
	if b == nil && (ask.InUse || ask.Pool.Kind == ipam.PoolKindRoutingDomain) {
		b = l.unused(ask.Pool) // kept once something is held in it
	}
	if !ask.InUse && (b == nil || b.space == nil) {
		return netip.Prefix{}, nil, &UnknownPoolError{Pool: ask.Pool}
	}
	if err := l.checkUnclaimed(ask, b); err != nil {
		return netip.Prefix{}, nil, err
	}
	if err := l.checkLimits(ask, b); err != nil {
		return netip.Prefix{}, nil, err
	}
	if ask.InUse {
		return ask.Block, b, b.heldByOthers(ask.Block)
	}
	if ask.Block.IsValid() {
		return ask.Block, b, b.taken(ask.Block)
	}
	block, ok := b.find(ask.Bits, ask.Strategy, l.options.Random, l.options.Clock.Now())
	if !ok {
		return netip.Prefix{}, nil, &ipam.ExhaustedError{
			Pools: []ipam.PoolKey{ask.Pool}, Bits: ask.Bits, Largest: b.largestFree(),
		}
	}
	return block, b, nil
}

// taken returns the reason why the requested block cannot be had, or nil if it is free.
func (b *book) taken(block netip.Prefix) error {
	if b.space.IsFree(block) {
		return nil
	}
	if err := b.heldByOthers(block); err != nil {
		return err
	}
	for e := range b.unreadable.overlapping(block) {
		return b.takenBy(e, block)
	}
	return &ipam.TakenError{Block: block, Pool: b.key}
}

// heldByOthers returns an error that names the holder of a part of the block, or nil if there is
// none.
func (b *book) heldByOthers(block netip.Prefix) error {
	for e := range b.overlapping(block) {
		return b.takenBy(e, block)
	}
	return nil
}

func (b *book) takenBy(e *entry, block netip.Prefix) error {
	return &ipam.TakenError{Block: block, Pool: b.key, Holder: e.holder(), Overlap: e.block}
}

// Confirm waits until the watch has shown the record that was created with this UID, and reports
// whether the block is ours. It returns nil if it is; ErrLost if another record overlapped it
// first; ErrPoolClosed if the pool's own record was missing or being released; a *ipam.LimitError;
// or ipam.ErrUnconfirmed if ctx is done first. It ends the hold. After any error the record is to
// be deleted, unless its name is fixed by its holder.
//
// If the record is not seen for Options.Silence, Confirm restarts the watch.
func (h *Hold) Confirm(ctx context.Context, uid string) error {
	acknowledged := h.acknowledge()
	silence := h.ledger.options.Clock.NewTimer(h.ledger.options.Silence)
	defer silence.Stop()
	for {
		select {
		case <-h.resolved:
			return h.verdict(uid)
		case <-silence.C():
			h.ledger.relistSince(acknowledged)
		case <-ctx.Done():
			h.Drop()
			return ipam.ErrUnconfirmed
		}
	}
}

// acknowledge notes that the API server has stored the record.
func (h *Hold) acknowledge() time.Time {
	h.ledger.mu.Lock()
	defer h.ledger.mu.Unlock()
	h.acknowledged = h.ledger.options.Clock.Now()
	return h.acknowledged
}

func (h *Hold) verdict(uid string) error {
	h.ledger.mu.Lock()
	defer h.ledger.mu.Unlock()
	h.drop()
	if h.seen != uid {
		h.refusal = ErrLost
	}
	if !errors.Is(h.refusal, ErrLost) {
		return h.refusal
	}
	if b := h.ledger.books[h.entry.pool()]; b != nil {
		b.lost(h.ledger.options.Clock.Now())
	}
	return ErrLost
}

// Drop ends the hold: the block is free again unless something else keeps it. Drop can be called
// more than once.
func (h *Hold) Drop() {
	h.ledger.mu.Lock()
	defer h.ledger.mu.Unlock()
	h.drop()
}

func (h *Hold) drop() {
	l := h.ledger
	name := h.entry.key()
	if l.holds[name] != h {
		return
	}
	delete(l.holds, name)
	l.countUnclaimed(h.entry, ipam.Usage.Sub)
	h.uncount()
	b := l.books[h.entry.pool()]
	b.drop(h.entry)
	l.prune(b)
}

// Abandon ends a hold whose record may or may not have been created. If the record turns up, the
// listeners are notified to delete it.
func (h *Hold) Abandon() {
	l := h.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	h.drop()
	name := h.entry.key()
	if e := l.byName.one(name); e != nil {
		l.notify(Change{Record: e.record(), Pool: e.pool(), Kind: Abandoned})
		return
	}
	now := l.options.Clock.Now()
	maps.DeleteFunc(l.abandoned, func(_ ipam.Name, since time.Time) bool { return now.Sub(since) > abandonedFor })
	l.abandoned[name] = now
}

// uncount stops counting the hold for its project, once: the record counts from the moment when the
// view shows it. Under the lock.
func (h *Hold) uncount() {
	if !h.uncounted {
		h.uncounted = true
		h.ledger.countUsage(h.entry, ipam.Usage.Sub)
	}
}

// resolve notes, when the watch has first shown the record, the reason why the block is not ours,
// or nil if it is. Under the lock.
func (h *Hold) resolve(uid string, refusal error) {
	if uid == h.former {
		return
	}
	select {
	case <-h.resolved:
	default:
		h.seen, h.refusal = uid, refusal
		close(h.resolved)
	}
}

// lose notes that the record is gone. Under the lock.
func (h *Hold) lose(uid string) {
	h.resolve(uid, ErrLost)
	if uid == h.seen {
		h.refusal = ErrLost
	}
}

// Room represents the free space of one pool. It is valid only during the call that it is an
// argument of, which runs under the ledger's lock.
type Room struct {
	ledger *Ledger
	book   *book
}

// Has reports whether there is a free block of the length. It costs O(1).
func (r Room) Has(length int) bool {
	largest := r.book.largestFree()
	return largest != ipam.NoLength && largest <= length
}

// IsFree reports whether the whole block lies within the pool and is free. It costs
// O(address bits).
func (r Room) IsFree(block netip.Prefix) bool { return r.book.space.IsFree(block) }

// Allows reports whether an account can have one more block of the length from the pool, by the
// limits of the pool and of the class.
func (r Room) Allows(of ipam.Account, length int) bool {
	if of.Project == "" || !r.book.pool.Limit.IsSet() && !of.ClassLimit.IsSet() {
		return true
	}
	return r.ledger.checkLimits(Ask{Bits: length, Project: of.Project, Class: of.Class, ClassLimit: of.ClassLimit}, r.book) == nil
}

// freed notifies the functions of OnFree of a block that became free. Under the lock.
func (l *Ledger) freed(pool ipam.PoolKey, block netip.Prefix) {
	for _, f := range l.onFree {
		f(pool, block)
	}
}

// ErrLost means that another record overlapped the block first, or that ours is
// gone: give way, and try again.
var ErrLost = errors.New("another allocation was recorded first")

// ErrOutOfTurn means that Ask.Turn did not let the holder have the block.
var ErrOutOfTurn = errors.New("it is the turn of another holder")

// UnknownPoolError reports that the view has no pool of that name, or that the pool has no CIDR
// yet.
type UnknownPoolError struct{ Pool ipam.PoolKey }

func (e *UnknownPoolError) Error() string { return e.Pool.String() + " is not known" }

// Ask represents a request for a block of one pool.
type Ask struct {
	Pool ipam.PoolKey
	// Bits is the prefix length.
	Bits     int
	Strategy ipam.Strategy
	// Block is the requested block, or the zero Prefix.
	Block netip.Prefix
	// InUse reports that the holder has the block already: only another record stands in its way,
	// not withheld space, and the pool need not be known.
	InUse bool
	// Gateway is the gateway that the holder of such an address was given with it.
	Gateway netip.Addr
	// Record is the name under which the block will be recorded, and Holder its holder.
	Record ipam.Name
	Holder ipam.Holder
	// UnclaimedLimit bounds the unclaimed records of the holder's namespace, and the unclaimed
	// records of its project. Zero means no bound, not even one by their share of the pool.
	UnclaimedLimit int
	// Project is the project of the holder; empty if it has none.
	Project string
	// Unlimited disables the limit of the pool.
	Unlimited bool
	// Class is the class by which the block is handed out. ClassLimit bounds the blocks of that
	// class that one project can hold.
	Class      string
	ClassLimit ipam.Limit
	// Turn, if not nil, decides whether the holder can have a free block.
	Turn Turn
}

// Turn decides whether a holder can have a free block now, or others come first.
type Turn interface {
	// MayTake reports whether the holder can have the block. If it cannot, but can have another
	// block, wanted is the block that a waiter asks for there, and MayTake is called again with the
	// next free block after wanted. MayTake is called under the ledger's lock, so that no block is
	// freed between its answer and the hold, and must not call the Ledger.
	MayTake(room Room, block netip.Prefix) (may bool, wanted netip.Prefix)
}

// gateway returns the gateway that is handed out with a block of the pool view.
func (a Ask) gateway(b *book, block netip.Prefix) netip.Addr {
	switch _, gateway := b.pool.Subnet(block); {
	case a.InUse:
		return a.Gateway
	case a.Holder.IsPool():
		return netip.Addr{}
	default:
		return gateway
	}
}

// usage returns the usage of the requested block.
func (a Ask) usage(b *book) ipam.Usage {
	if a.Block.IsValid() {
		return ipam.UsageOf(a.Block)
	}
	return ipam.UsageOf(netip.PrefixFrom(b.pool.CIDR.Addr(), a.Bits))
}
