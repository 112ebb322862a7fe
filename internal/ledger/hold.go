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

// Ask represents a request for a block of one pool.
type Ask struct {
	Pool ipam.PoolKey
	// Bits is the prefix length.
	Bits     int
	Strategy ipam.Strategy
	// Block is the requested block, or the zero Prefix. AdditionalBlocks are requested with it.
	Block            netip.Prefix
	AdditionalBlocks []netip.Prefix
	// InUse reports that the holder has the block already: withheld space and an unknown pool do not
	// matter.
	InUse bool
	// Gateway is the gateway that the holder of such an address was given with it.
	Gateway netip.Addr
	// Record is the name under which the block will be recorded, and Holder its holder.
	Record ipam.Name
	Holder ipam.Holder
	// HolderUID is that of a stored pool: what its own records have of the blocks is no obstacle.
	HolderUID string
	// UnclaimedLimit bounds the unclaimed records of the holder's namespace, and those of its
	// project. Zero means no bound, not even by their share of the pool.
	UnclaimedLimit int
	// Project is the project of the holder; empty if it has none.
	Project string
	// Unlimited disables the limit of the pool.
	Unlimited bool
	// ClassLimit bounds the blocks of the class that one project can hold.
	Class      string
	ClassLimit ipam.Limit
	// Turn, if not nil, decides whether the holder can have a free block.
	Turn Turn
}

// Turn reports whether a holder can have the block now, or others come first. If it cannot, but can
// have another block, wantedBlock is the block that a waiter asks for there, and Turn is called again
// with the next free block after that. Turn is called under the ledger's lock, so that no block is freed
// between its answer and the hold, and must not call the Ledger.
type Turn func(room Room, block netip.Prefix) (isTurn bool, wantedBlock netip.Prefix)

// gatewayFor returns the gateway that is handed out with a block of the pool view.
func (a Ask) gatewayFor(b *poolView, block netip.Prefix) netip.Addr {
	switch _, gateway := b.pool.Subnet(block); {
	case a.InUse:
		return a.Gateway
	case a.Holder.IsPool():
		return netip.Addr{}
	default:
		return gateway
	}
}

// blocks returns all requested blocks.
func (a Ask) blocks() []netip.Prefix { return append([]netip.Prefix{a.Block}, a.AdditionalBlocks...) }

// isOwn reports whether an entry is an own record of the stored pool that asks.
func (a Ask) isOwn(e *entry) bool {
	return a.HolderUID != "" && a.HolderUID == e.holderUID && a.Holder == e.holder() && a.Holder.IsPool()
}

// usageIn returns the usage of the requested block.
func (a Ask) usageIn(b *poolView) ipam.Usage {
	if a.Block.IsValid() {
		return ipam.UsageOf(a.blocks()...)
	}
	return ipam.UsageOf(netip.PrefixFrom(b.pool.CIDR.Addr(), a.Bits))
}

// Hold represents a block that this process keeps off its other requests until the block is
// recorded and confirmed. End it with Confirm, Drop or Abandon.
type Hold struct {
	Block netip.Prefix
	// AdditionalBlocks are those of the request.
	AdditionalBlocks []netip.Prefix
	// Pool is the pool as it was when the block was found.
	Pool ipam.Pool

	ledger *Ledger
	ask    Ask
	entry  *entry
	// verdictReady is closed when the watch has shown the record. seenUID then has its UID, and
	// refusal the reason why the block is not ours; under the ledger's lock.
	verdictReady chan struct{}
	seenUID      string
	refusal      error
	// acknowledgedAt is the time when the API server had stored the record, or zero; under the
	// ledger's lock.
	acknowledgedAt time.Time
	// formerUID is the UID of an earlier record of the name, which is going: its events are not ours.
	formerUID string
	// isUncounted reports that the hold is no longer counted for its project.
	isUncounted bool
}

// Project returns the project for which the block counts.
func (h *Hold) Project() string { return h.ask.Project }

// Gateway returns the gateway that is handed out with the block.
func (h *Hold) Gateway() netip.Addr { return h.entry.shared.Value().gateway }

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
	h := &Hold{Block: block, AdditionalBlocks: ask.AdditionalBlocks, Pool: b.pool, ledger: l, ask: ask, verdictReady: make(chan struct{})}
	h.entry = newEntry(ipam.Record{
		Name: ask.Record, Block: block, AdditionalBlocks: ask.AdditionalBlocks, Pool: ask.Pool, Holder: ask.Holder, Class: ask.Class, Project: ask.Project,
		Gateway: ask.gatewayFor(b, block),
	})
	h.entry.hold = h
	if previous := l.byName.find(ask.Record); previous != nil {
		h.formerUID = previous.uid
	}
	l.poolViews[ask.Pool] = b
	b.addEntry(h.entry)
	l.countUnclaimed(h.entry, ipam.Usage.Add)
	l.countUsage(h.entry, true)
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

// maxPassedOver bounds the blocks that findInTurn passes over. Each costs as much as the first.
const maxPassedOver = 64

// findInTurn finds a block that Ask.Turn lets the holder have.
func (l *Ledger) findInTurn(ask Ask) (netip.Prefix, *poolView, error) {
	block, b, err := l.findBlock(ask)
	if err != nil || ask.Turn == nil {
		return block, b, err
	}
	for _, additional := range ask.AdditionalBlocks {
		if isTurn, _ := ask.Turn(Room{l, b}, additional); !isTurn {
			return netip.Prefix{}, nil, ErrOutOfTurn
		}
	}
	for range maxPassedOver {
		isTurn, wantedBlock := ask.Turn(Room{l, b}, block)
		if isTurn {
			return block, b, nil
		}
		if !wantedBlock.IsValid() || ask.Block.IsValid() {
			break
		}
		var ok bool
		block, _ = b.space.FindFrom(offsetAddr(wantedBlock, 1), ask.Bits) // there is one: it wraps round
		if block, ok = l.passStrays(b, block); !ok {
			break
		}
	}
	return netip.Prefix{}, nil, ErrOutOfTurn
}

func (l *Ledger) findBlock(ask Ask) (netip.Prefix, *poolView, error) {
	if !l.synced {
		return netip.Prefix{}, nil, ipam.ErrNotSynced
	}
	b := l.poolViews[ask.Pool]
	if b == nil && (ask.InUse || ask.Pool.Kind == ipam.PoolKindRoutingDomain) {
		b = l.emptyPoolView(ask.Pool) // kept once something is held in it
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
		return ask.Block, b, b.checkHolders(ask.Block)
	}
	if ask.Block.IsValid() {
		if e := l.strayOn(b, ask.Block); e != nil {
			return netip.Prefix{}, nil, b.takenError(e, e.block, ask.Block)
		}
		return ask.Block, b, b.checkAllFree(ask)
	}
	block, ok := b.findFree(ask.Bits, ask.Strategy, l.options.Random, l.options.Clock.Now())
	if ok {
		block, ok = l.passStrays(b, block)
	}
	if !ok {
		return netip.Prefix{}, nil, &ipam.ExhaustedError{
			Pools: []ipam.PoolKey{ask.Pool}, Bits: ask.Bits, Largest: b.largestFree(),
		}
	}
	return block, b, nil
}

// checkAllFree returns the reason why the requested blocks cannot be had, or nil if all are free, but
// for what the same pool's own records have of them.
func (b *poolView) checkAllFree(ask Ask) error {
	for _, block := range ask.blocks() {
		if err := b.checkFree(block, ask); err != nil {
			return err
		}
	}
	return nil
}

func (b *poolView) checkFree(block netip.Prefix, ask Ask) error {
	if b.space.IsFree(block) {
		return nil
	}
	hasOwn := false
	for overlap, e := range b.overlapping(block) {
		if !ask.isOwn(e) {
			return b.takenError(e, overlap, block)
		}
		hasOwn = true
	}
	for overlap, e := range b.unreadable.overlapping(block) {
		return b.takenError(e, overlap, block)
	}
	if hasOwn && ipam.Covers(b.pool.CIDR, block) && !b.pool.Withheld.Overlaps(block) && !b.hasGatewayIn(block) {
		return nil
	}
	return &ipam.TakenError{Block: block, Pool: b.pool.Key}
}

// checkHolders returns an error that names the holder of a part of the block, or nil if there is
// none.
func (b *poolView) checkHolders(block netip.Prefix) error {
	for overlap, e := range b.overlapping(block) {
		return b.takenError(e, overlap, block)
	}
	return nil
}

func (b *poolView) takenError(e *entry, overlap, block netip.Prefix) *ipam.TakenError {
	return &ipam.TakenError{Block: block, Pool: b.pool.Key, Holder: e.holder(), Overlap: overlap}
}

// Confirm waits until the watch has shown the record that was created with this UID, and reports
// whether the block is ours. It returns nil if it is; ErrLost if another record overlapped it
// first; ErrPoolClosed if the pool's own record was missing or being released; a *ipam.LimitError;
// or ipam.ErrUnconfirmed if ctx is done first. It ends the hold. After any error the record is to
// be deleted, unless its name is fixed by its holder.
//
// If the record is not seen for Options.Silence, Confirm restarts the watch.
func (h *Hold) Confirm(ctx context.Context, uid string) error {
	acknowledgedAt := h.markAcknowledged()
	silence := h.ledger.options.Clock.NewTimer(h.ledger.options.Silence)
	defer silence.Stop()
	for {
		select {
		case <-h.verdictReady:
			return h.finish(uid)
		case <-silence.C():
			h.ledger.relistSince(acknowledgedAt)
		case <-ctx.Done():
			h.Drop()
			return ipam.ErrUnconfirmed
		}
	}
}

func (h *Hold) markAcknowledged() time.Time {
	h.ledger.mu.Lock()
	defer h.ledger.mu.Unlock()
	h.acknowledgedAt = h.ledger.options.Clock.Now()
	return h.acknowledgedAt
}

func (h *Hold) finish(uid string) error {
	h.ledger.mu.Lock()
	defer h.ledger.mu.Unlock()
	h.removeHold()
	if h.seenUID != uid {
		h.refusal = ErrLost
	}
	if !errors.Is(h.refusal, ErrLost) {
		return h.refusal
	}
	if b := h.ledger.poolViews[h.entry.pool()]; b != nil {
		b.startSpreading(h.ledger.options.Clock.Now())
	}
	return ErrLost
}

// Drop ends the hold: the block is free again unless something else keeps it. Drop can be called
// more than once.
func (h *Hold) Drop() {
	h.ledger.mu.Lock()
	defer h.ledger.mu.Unlock()
	h.removeHold()
}

func (h *Hold) removeHold() {
	l := h.ledger
	name := h.entry.key()
	if l.holds[name] != h {
		return
	}
	delete(l.holds, name)
	l.countUnclaimed(h.entry, ipam.Usage.Sub)
	h.subtractUsage()
	b := l.poolViews[h.entry.pool()]
	b.removeEntry(h.entry)
	l.prune(b)
}

// Abandon ends a hold whose record may or may not have been created. If the record turns up, the
// listeners are notified to delete it.
func (h *Hold) Abandon() {
	l := h.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	h.removeHold()
	name := h.entry.key()
	if e := l.byName.find(name); e != nil {
		l.notify(e, Abandoned)
		return
	}
	now := l.options.Clock.Now()
	maps.DeleteFunc(l.abandoned, func(_ ipam.Name, since time.Time) bool { return now.Sub(since) > abandonedTTL })
	l.abandoned[name] = now
}

// subtractUsage stops counting the hold for its project, once, when its record counts. Under the
// lock.
func (h *Hold) subtractUsage() {
	if !h.isUncounted {
		h.isUncounted = true
		h.ledger.countUsage(h.entry, false)
	}
}

// setVerdict notes, when the watch first shows the record, why the block is not ours, if so. Under
// the lock.
func (h *Hold) setVerdict(uid string, refusal error) {
	if uid == h.formerUID {
		return
	}
	select {
	case <-h.verdictReady:
	default:
		h.seenUID, h.refusal = uid, refusal
		close(h.verdictReady)
	}
}

// setLost notes that the record is gone. Under the lock.
func (h *Hold) setLost(uid string) {
	h.setVerdict(uid, ErrLost)
	if uid == h.seenUID {
		h.refusal = ErrLost
	}
}

// Room represents the free space of one pool. It is valid only during the call that it is an
// argument of.
type Room struct {
	ledger *Ledger
	view   *poolView
}

// Has reports whether there is a free block of the length. It costs O(1).
func (r Room) Has(length int) bool {
	largest := r.view.largestFree()
	return largest != ipam.NoLength && largest <= length
}

// IsFree reports whether the whole block lies within the pool and is free. It costs O(address
// bits).
func (r Room) IsFree(block netip.Prefix) bool { return r.view.space.IsFree(block) }

// Allows reports whether an account can have one more block of the length, by the limits of pool
// and class.
func (r Room) Allows(account ipam.Account, length int) bool {
	if account.Project == "" || !r.view.pool.Limit.IsSet() && !account.ClassLimit.IsSet() {
		return true
	}
	return r.ledger.checkLimits(Ask{Bits: length, Project: account.Project, Class: account.Class, ClassLimit: account.ClassLimit}, r.view) == nil
}

func (l *Ledger) notifyFree(pool ipam.PoolKey, block netip.Prefix) {
	for _, f := range l.onFree {
		f(pool, block)
	}
}

// ErrLost means that another record overlapped the block first, or that ours is gone.
var ErrLost = errors.New("another allocation was recorded first")

// ErrOutOfTurn means that Ask.Turn did not let the holder have the block.
var ErrOutOfTurn = errors.New("it is the turn of another holder")

// UnknownPoolError reports that the view has no pool of that name with a CIDR.
type UnknownPoolError struct{ Pool ipam.PoolKey }

func (e *UnknownPoolError) Error() string { return e.Pool.String() + " is not known" }
