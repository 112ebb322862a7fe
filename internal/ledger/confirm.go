package ledger

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// ErrPoolClosed means that the own record of a block's pool is missing, not confirmed itself, or
// being released: the pool hands out nothing.
var ErrPoolClosed = errors.New("the pool's own record is missing or being released")

// resolve decides, when the watch has shown a record, whether it is confirmed, and notifies the
// request that waits for it. If the creation of the record had seemed to fail, resolve notifies the
// listeners to delete it.
func (l *Ledger) resolve(e *entry) {
	l.confirm(e)
	name := e.key()
	if h := l.holds[name]; h != nil {
		h.resolve(e.uid, l.refusal(h, e))
	}
	if _, ok := l.abandoned[name]; ok {
		delete(l.abandoned, name)
		l.notify(Change{Record: e.record(), Pool: e.pool(), Kind: Abandoned})
	}
}

// refusal returns the reason why the block of a record does not belong to its holder, or nil if it
// does.
func (l *Ledger) refusal(h *Hold, e *entry) error {
	if h.Block != e.block {
		return ErrLost
	}
	if err := l.unconfirmed(e); err != nil {
		return err
	}
	if !h.ask.InUse && l.books[e.pool()].hasGatewayIn(e.block) {
		return ErrLost // an address was recorded first that was handed out with it as its gateway
	}
	return l.exceedsLimits(h, e)
}

// confirm confirms a record if it can be confirmed, or notes that it is not confirmed. A confirmed
// record stays confirmed: any record that overlaps it was recorded later.
func (l *Ledger) confirm(e *entry) {
	if e.confirmed {
		return
	}
	b := l.books[e.pool()]
	hasRival := b.rival(e.block, e.key()) != nil
	if hasRival {
		l.contest(b, e)
	}
	if !e.isAnswered() && (hasRival || !l.open(e.pool())) {
		b.unconfirmed[e] = true
		return
	}
	e.confirmed = true
	if b.unconfirmed[e] {
		delete(b.unconfirmed, e)
		l.notify(Change{Record: e.record(), Pool: e.pool(), Kind: Changed})
	}
	l.reopen(e)
}

// isAnswered reports whether a live claim names a record that was made before the claim
// existed: its maker had confirmed it, or the claim would not name it.
func (e *entry) isAnswered() bool { return e.claimed && e.holderUID == "" }

// unconfirmed returns the reason why a record is not confirmed, ErrLost or ErrPoolClosed, or nil if
// it is confirmed.
func (l *Ledger) unconfirmed(e *entry) error {
	switch {
	case e.confirmed:
		return nil
	case l.books[e.pool()].rival(e.block, e.key()) != nil:
		return ErrLost
	}
	return ErrPoolClosed
}

// confirmAfter confirms the records that could not be confirmed because of a record that is gone.
func (l *Ledger) confirmAfter(gone *entry, b *book) {
	b.endContests(gone)
	if len(b.unconfirmed) == 0 {
		return
	}
	for e := range b.overlapping(gone.block) {
		if e.hold == nil {
			l.confirm(e)
		}
	}
}

// reopen confirms the records of the pool whose own record has changed.
func (l *Ledger) reopen(own *entry) {
	if own.purpose() != ipam.PurposePool {
		return
	}
	h := own.holder()
	b := l.books[ipam.PoolKey{Kind: ipam.PoolKind(h.Kind), Namespace: h.Namespace, Name: h.Name}]
	if b == nil {
		return
	}
	for e := range b.unconfirmed {
		l.confirm(e)
	}
}

// open reports whether a space can hand out blocks: a routing domain always can, a pool can while
// its own record exists, is confirmed, and is not being released.
func (l *Ledger) open(key ipam.PoolKey) bool {
	if !key.Kind.IsPool() {
		return true
	}
	for own := range l.byHolder.of(convert.HolderOfPool(key)) {
		if own.purpose() == ipam.PurposePool && own.confirmed && own.state() == ipam.StateBound && !own.terminating && l.isOf(own, key) {
			return true
		}
	}
	return false
}

// isOf reports whether an own record states the pool as its spec does. It returns true if the spec
// is not known.
func (l *Ledger) isOf(own *entry, key ipam.PoolKey) bool {
	b := l.books[key]
	return b == nil || b.space == nil || own.block == b.pool.CIDR && own.pool() == b.pool.Home
}

// Confirmed returns nil if the view shows the record and the record is confirmed: a replica that
// records a block that overlaps it gives way. If the record is not confirmed, Confirmed returns a
// *ipam.TakenError that names the other record, or ErrPoolClosed. If the view does not show the
// record, it returns ipam.ErrUnconfirmed.
func (l *Ledger) Confirmed(record ipam.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byUID.one(record.UID)
	if e == nil {
		return ipam.ErrUnconfirmed
	}
	err := l.unconfirmed(e)
	if errors.Is(err, ErrLost) {
		rival := l.books[e.pool()].rival(e.block, e.key())
		return &ipam.TakenError{Block: e.block, Pool: e.pool(), Holder: rival.holder(), Overlap: rival.block}
	}
	return err
}

// Shown represents the state in the view of a pool's own record that is to be released.
type Shown int

const (
	// NotShown means that the view does not show the mark yet.
	NotShown Shown = iota
	// Unused means that the view shows the mark, and no record of the pool.
	Unused
	// InUse means that the view shows the mark, and a record of the pool.
	InUse
	// Overtaken means that another writer has changed the record since, or that the record is not
	// in the view: it is gone, or the view was listed again and is older.
	Overtaken
)

// Release returns the state in the view of a pool's own record that is marked as releasing. before
// is the version of the record before the mark.
func (l *Ledger) Release(marked ipam.Record, before string, pool ipam.PoolKey) Shown {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byUID.one(marked.UID)
	switch b := l.books[pool]; {
	case e == nil:
		return Overtaken
	case e.version == marked.Version && b != nil && b.records > 0:
		return InUse
	case e.version == marked.Version:
		return Unused
	case e.version == before:
		return NotShown
	}
	return Overtaken
}

// poolsFirst orders the own records of pools before those of blocks.
func poolsFirst(a, b *entry) int {
	rank := func(e *entry) int {
		if e.purpose() == ipam.PurposePool {
			return 0
		}
		return 1
	}
	return cmp.Compare(rank(a), rank(b))
}

// Frees counts the blocks that the pools have freed so far, for AwaitRelease.
func (l *Ledger) Frees(pools []ipam.PoolKey) int {
	frees, _ := l.released(pools, ipam.Holder{})
	return frees
}

// AwaitRelease waits until the pools have freed more blocks than before, or until ctx is done, if a
// release is known to be on its way there: a record whose claim is terminating or gone, or a record
// of the asking holder itself. If none is known, it waits for the sign of one only for as long as
// patience lasts. It reports whether a block was freed.
func (l *Ledger) AwaitRelease(ctx context.Context, pools []ipam.PoolKey, asking ipam.Holder, before int, patience time.Duration) bool {
	wake := make(chan struct{}, 1)
	l.subscribe(pools, wake)
	defer l.unsubscribe(pools, wake)
	impatient := l.options.Clock.NewTimer(patience)
	defer impatient.Stop()
	for expected := false; ; {
		frees, leaving := l.released(pools, asking)
		if frees > before {
			return true
		}
		expected = expected || leaving
		if !expected && patience <= 0 {
			return false
		}
		select {
		case <-wake:
		case <-impatient.C():
			if !expected {
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
}

// Await waits until the condition holds or ctx is done. It checks the condition again when
// something happens in the pools. The condition can call the Ledger.
func (l *Ledger) Await(ctx context.Context, pools []ipam.PoolKey, condition func() bool) {
	wake := make(chan struct{}, 1)
	l.subscribe(pools, wake)
	defer l.unsubscribe(pools, wake)
	for !condition() {
		select {
		case <-wake:
		case <-ctx.Done():
			return
		}
	}
}

// IsLeaving reports whether the record is about to be released or retained.
func (l *Ledger) IsLeaving(record ipam.Name) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byName.one(record)
	return e != nil && e.leaving
}

// subscribe registers wake to receive a signal when something happens in the pools.
func (l *Ledger) subscribe(pools []ipam.PoolKey, wake chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range pools {
		if b := l.books[key]; b != nil {
			b.awaited[wake] = struct{}{}
		}
	}
}

func (l *Ledger) unsubscribe(pools []ipam.PoolKey, wake chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range pools {
		if b := l.books[key]; b != nil {
			delete(b.awaited, wake)
			l.prune(b)
		}
	}
}

// released counts the blocks that the pools have freed so far, and reports whether
// one of them is about to free another.
func (l *Ledger) released(pools []ipam.PoolKey, asking ipam.Holder) (frees int, leaving bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range pools {
		if b := l.books[key]; b == nil {
			frees += l.pruned
		} else {
			frees += b.frees
			leaving = leaving || b.leaving > 0 || l.holdsIn(asking, key)
		}
	}
	return frees, leaving
}

// holdsIn reports whether the holder, which does not exist yet, has a record in the pool from an
// earlier life.
func (l *Ledger) holdsIn(holder ipam.Holder, pool ipam.PoolKey) bool {
	for e := range l.byHolder.of(holder) {
		if e.pool() == pool && (e.state() == ipam.StateBound || e.state() == ipam.StateReleasing) {
			return true
		}
	}
	return false
}

// AwaitStored gives the view Options.Silence to show a record of the name, which is known to be
// stored in one of the pools. If the view does not show it, the watch begins again.
func (l *Ledger) AwaitStored(ctx context.Context, name ipam.Name, pools []ipam.PoolKey) {
	known := l.options.Clock.Now()
	limited, cancel := context.WithTimeout(ctx, l.options.Silence)
	defer cancel()
	shown := func() bool { _, ok := l.Record(name); return ok }
	l.Await(limited, pools, shown)
	if ctx.Err() == nil && !shown() {
		l.relistSince(known)
	}
}
