package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/cadastre-dev/cadastre/internal/failpoint"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// ErrLost means that another record overlapped the block first, or that ours is
// gone: give way, and try again.
var ErrLost = errors.New("another allocation was recorded first")

// ErrFreed means that a block of the pool was freed since Ask.Frees was read: what
// was found out before, such as whose turn it is, may not be so any more.
var ErrFreed = errors.New("a block was freed meanwhile")

// UnknownPoolError means that the picture has no pool of that name, or one that
// has no CIDR yet.
type UnknownPoolError struct{ Pool ipam.PoolKey }

func (e *UnknownPoolError) Error() string { return e.Pool.String() + " is not known" }

// Ask is a request for a block of one pool.
type Ask struct {
	Pool ipam.PoolKey
	// Bits is the prefix length.
	Bits     int
	Strategy ipam.Strategy
	// Block is the very block that is asked for, or the zero Prefix.
	Block netip.Prefix
	// InUse says that the holder has the block already: only another record is
	// in its way, not what is withheld, and the pool need not be known.
	InUse bool
	// Record is the name under which it will be recorded, and Holder for whom.
	Record ipam.Name
	Holder ipam.Holder
	// UnboundLimit bounds the records of the holder's namespace that nobody has taken;
	// zero is no bound.
	UnboundLimit int
	// Frees, if not nil, is what Ledger.Frees said of the pool before it was judged who
	// may have a block of it. Hold is ErrFreed where that has changed.
	Frees *int
}

// Hold is a block that this process keeps off its own other requests until it
// is recorded and confirmed. End it with Confirm, Drop or Disown.
type Hold struct {
	Block netip.Prefix
	// Pool as it was when the block was found.
	Pool ipam.Pool

	ledger *Ledger
	entry  *entry
	// settled is closed once the watch has shown the record, with its UID in
	// seen and in ours whether the block is ours; both under the ledger's lock.
	settled chan struct{}
	seen    string
	ours    bool
	// former is the UID of a record of that name which was in the picture when the
	// block was found, and which is going: what is heard of it says nothing of ours.
	former string
}

// Hold finds a free block and keeps it. There is one hold for a record's name at
// a time; a second is ipam.ErrUnconfirmed. Other errors: ipam.ErrNotSynced,
// ipam.ErrTooManyUnbound, ErrFreed, *UnknownPoolError, *ipam.ExhaustedError,
// *ipam.TakenError.
func (l *Ledger) Hold(ask Ask) (*Hold, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holds[ask.Record] != nil {
		return nil, fmt.Errorf("another request for %s is under way: %w", ask.Record, ipam.ErrUnconfirmed)
	}
	block, b, err := l.find(ask)
	if err != nil {
		return nil, err
	}
	if ask.Frees != nil && *ask.Frees != b.frees {
		return nil, ErrFreed
	}
	h := &Hold{Block: block, Pool: b.pool, ledger: l, settled: make(chan struct{})}
	h.Pool.Key = ask.Pool // also where the pool is not known
	h.entry = newEntry(ipam.Record{Name: ask.Record, Block: block, Pool: ask.Pool, Holder: ask.Holder})
	h.entry.hold = h
	if former := l.byName.one(ask.Record); former != nil {
		h.former = former.uid
	}
	b.take(h.entry)
	l.countUnbound(h.entry, +1)
	l.holds[ask.Record] = h
	return h, nil
}

// Peek is the block that Hold would find, without holding it.
func (l *Ledger) Peek(ask Ask) (netip.Prefix, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	block, _, err := l.find(ask)
	return block, err
}

func (l *Ledger) find(ask Ask) (netip.Prefix, *book, error) {
	if !l.synced {
		return netip.Prefix{}, nil, ipam.ErrNotSynced
	}
	if ask.UnboundLimit > 0 && l.unbound[ask.Holder.Namespace] >= ask.UnboundLimit {
		return netip.Prefix{}, nil, fmt.Errorf("%w: %s has %d, as many as it may", ipam.ErrTooManyUnbound, ask.Holder.Namespace, ask.UnboundLimit)
	}
	b := l.books[ask.Pool]
	if b == nil && (ask.InUse || ask.Pool.Kind == ipam.KindRoutingDomain) {
		b = l.book(ask.Pool)
	}
	if ask.InUse {
		return ask.Block, b, b.heldByOthers(ask.Block)
	}
	if b == nil || b.space == nil {
		return netip.Prefix{}, nil, &UnknownPoolError{Pool: ask.Pool}
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

// taken says why the very block cannot be had.
func (b *book) taken(block netip.Prefix) error {
	if b.space.IsFree(block) {
		return nil
	}
	if err := b.heldByOthers(block); err != nil {
		return err
	}
	return &ipam.TakenError{Block: block, Pool: b.key}
}

// heldByOthers says who has a part of the block.
func (b *book) heldByOthers(block netip.Prefix) error {
	for e := range b.overlapping(block) {
		return &ipam.TakenError{Block: block, Pool: b.key, Holder: e.holder(), Overlap: e.block}
	}
	return nil
}

// Confirm waits until the watch has shown the record that was created with this
// UID, and says whether the block is ours: nil, ErrLost, or ipam.ErrUnconfirmed
// when ctx is done first. It ends the hold; after any error the record is to be
// deleted.
//
// A record that is not seen for Options.Silence makes the watch begin anew.
func (h *Hold) Confirm(ctx context.Context, uid string) error {
	if failpoint.AnswerUnsynced() && h.ledger.isUnlisted() {
		h.Drop()
		return nil
	}
	acknowledged := h.ledger.options.Clock.Now()
	silence := h.ledger.options.Clock.NewTimer(h.ledger.options.Silence)
	defer silence.Stop()
	for {
		select {
		case <-h.settled:
			return h.verdict(uid)
		case <-silence.C():
			h.ledger.relistSince(acknowledged)
		case <-ctx.Done():
			h.Drop()
			return ipam.ErrUnconfirmed
		}
	}
}

func (h *Hold) verdict(uid string) error {
	h.ledger.mu.Lock()
	defer h.ledger.mu.Unlock()
	h.drop()
	if h.ours && h.seen == uid || failpoint.SkipConfirm() {
		return nil
	}
	if b := h.ledger.books[h.entry.pool()]; b != nil {
		b.lost(h.ledger.options.Clock.Now())
	}
	return ErrLost
}

// Drop ends the hold: the block is free again unless something else keeps it.
// It may be called more than once.
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
	l.countUnbound(h.entry, -1)
	b := l.books[h.entry.pool()]
	b.drop(h.entry)
	l.prune(b)
}

// Disown ends a hold whose record may or may not have been created: when it
// turns up, listeners are told to delete it.
func (h *Hold) Disown() {
	l := h.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	h.drop()
	name := h.entry.key()
	if e := l.byName.one(name); e != nil {
		l.tell(Change{Record: e.record(), Pool: e.pool(), Kind: Disowned})
		return
	}
	now := l.options.Clock.Now()
	maps.DeleteFunc(l.disowned, func(_ ipam.Name, since time.Time) bool { return now.Sub(since) > disownedFor })
	l.disowned[name] = now
}

// settle says whose the block is, when the watch has first shown the record.
// Under the lock.
func (h *Hold) settle(uid string, ours bool) {
	if uid == h.former {
		return
	}
	select {
	case <-h.settled:
	default:
		h.seen, h.ours = uid, ours
		close(h.settled)
	}
}

// lose says that the record is gone. Under the lock.
func (h *Hold) lose(uid string) {
	h.settle(uid, false)
	if uid == h.seen {
		h.ours = false
	}
}
