package ledger

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// ErrPoolClosed means that the pool's own record is missing, unconfirmed, or being released.
var ErrPoolClosed = errors.New("the pool's own record is missing or being released")

// settleEntry decides whether a record that the watch shows is confirmed, and notifies the request
// that waits for it. A record whose creation had seemed to fail is reported as Abandoned.
func (l *Ledger) settleEntry(e *entry) {
	l.confirmEntry(e)
	name := e.key()
	if h := l.holds[name]; h != nil {
		h.setVerdict(e.uid, l.refusal(h, e))
	}
	if _, ok := l.abandoned[name]; ok {
		delete(l.abandoned, name)
		l.notify(e, Abandoned)
	}
}

// refusal returns the reason why the block of a record is not its holder's, or nil.
func (l *Ledger) refusal(h *Hold, e *entry) error {
	if h.Block != e.block || !slices.Equal(h.AdditionalBlocks, e.additionalBlocks()) {
		return ErrLost
	}
	if err := l.checkConfirmed(e); err != nil {
		return err
	}
	if b := l.poolViews[e.pool()]; !h.ask.InUse && (b.hasGatewayOf(e) || l.strayOn(b, e.block) != nil) {
		return ErrLost // an address was recorded first that was handed out with it as its gateway, or is a stray
	}
	return l.checkHoldLimits(h, e)
}

// confirmEntry confirms a record if it can be confirmed, or notes that it is not confirmed. A confirmed
// record stays confirmed: any record that overlaps it was recorded later.
func (l *Ledger) confirmEntry(e *entry) {
	if e.confirmed {
		return
	}
	b := l.poolViews[e.pool()]
	hasRival := b.hasRival(e)
	if hasRival {
		l.markContested(b, e)
	}
	if !e.isAnswered() && (hasRival || !l.isCovered(e)) {
		b.unconfirmedEntries[e] = true
		l.strays.add(e)
		return
	}
	e.confirmed = true
	l.strays.remove(e)
	if b.unconfirmedEntries[e] {
		delete(b.unconfirmedEntries, e)
		l.notify(e, Changed)
	}
	l.updatePoolOf(e)
}

// isAnswered reports whether a live claim names a record that was made before the claim: its maker
// had confirmed it, or the claim would not name it.
func (e *entry) isAnswered() bool { return e.claimed && e.holderUID == "" }

// checkConfirmed returns ErrLost or ErrPoolClosed if a record is not confirmed.
func (l *Ledger) checkConfirmed(e *entry) error {
	switch {
	case e.confirmed:
		return nil
	case l.poolViews[e.pool()].hasRival(e):
		return ErrLost
	}
	return ErrPoolClosed
}

// confirmAfterRemoval confirms the records that could not be confirmed because of a record that is gone.
func (l *Ledger) confirmAfterRemoval(removedEntry *entry, b *poolView) {
	b.endContests(removedEntry)
	if len(b.unconfirmedEntries) == 0 {
		return
	}
	for _, e := range b.overlappingRecords(removedEntry) {
		l.confirmEntry(e)
	}
}

func (l *Ledger) confirmBlocks(b *poolView) {
	for e := range b.unconfirmedEntries {
		l.confirmEntry(e)
	}
}

// CheckConfirmed returns nil if the view shows the record as confirmed: a replica that records a
// block that overlaps it gives way. Otherwise it returns a *ipam.TakenError that names the other
// record, or ErrPoolClosed; or ipam.ErrUnconfirmed if the view does not show the record.
func (l *Ledger) CheckConfirmed(record ipam.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byUID.find(record.UID)
	if e == nil {
		return ipam.ErrUnconfirmed
	}
	err := l.checkConfirmed(e)
	if errors.Is(err, ErrLost) {
		b := l.poolViews[e.pool()]
		rival, overlap := b.rival(e)
		return b.takenError(rival, overlap, e.partIn(overlap))
	}
	return err
}

// ReleaseVerdict represents the state in the view of a pool's own record that is to be released.
type ReleaseVerdict int

const (
	// NotShown means that the view does not show the mark yet.
	NotShown ReleaseVerdict = iota
	// Unused means that the view shows the mark, and no record of the pool that needs this own record.
	Unused
	// InUse means that the view shows the mark, and a record of the pool that needs this own record.
	InUse
	// Overtaken means that another writer has changed the record since, or that it is not in the
	// view.
	Overtaken
)

// Release returns the state in the view of a pool's own record that was marked after
// previousVersion. poolStays means that the pool is to keep another own record.
func (l *Ledger) Release(marked ipam.Record, previousVersion string, pool ipam.PoolKey, poolStays bool) ReleaseVerdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byUID.find(marked.UID)
	switch {
	case e == nil:
		return Overtaken
	case e.version == marked.Version && l.isNeeded(e, pool, poolStays):
		return InUse
	case e.version == marked.Version:
		return Unused
	case e.version == previousVersion:
		return NotShown
	}
	return Overtaken
}

// IsNeeded reports whether a pool's own record cannot be released now: it covers records of the pool that
// no other own record covers, or none would be left of a pool that stays.
func (l *Ledger) IsNeeded(own ipam.Record, pool ipam.PoolKey, poolStays bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.byUID.find(own.UID); e != nil {
		return l.isNeeded(e, pool, poolStays)
	}
	b := l.poolViews[pool]
	return poolStays || b != nil && b.records > 0
}

// Frees counts the blocks that the pools have freed so far, for AwaitRelease.
func (l *Ledger) Frees(pools []ipam.PoolKey) int {
	frees, _ := l.releaseState(pools, ipam.Holder{})
	return frees
}

// AwaitRelease waits until the pools have freed more blocks than before, and reports whether they
// have, if a release is known to be on its way: a record whose claim is terminating or gone, or one
// of the asking holder. It waits for the sign of one only for as long as patience lasts.
func (l *Ledger) AwaitRelease(ctx context.Context, pools []ipam.PoolKey, holder ipam.Holder, freesBefore int, patience time.Duration) bool {
	isFreed, isExpected := false, false
	look := func() bool {
		frees, isLeaving := l.releaseState(pools, holder)
		isFreed, isExpected = frees > freesBefore, isExpected || isLeaving
		return isFreed
	}
	patientCtx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l.Await(patientCtx, pools, look)
	if isExpected && !isFreed {
		l.Await(ctx, pools, look)
	}
	return isFreed
}

// Await waits until the condition holds or ctx is done. It checks the condition, which can call the
// Ledger, when something happens in the pools.
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
	e := l.byName.find(record)
	return e != nil && e.isLeaving
}

func (l *Ledger) subscribe(pools []ipam.PoolKey, wake chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range pools {
		if b := l.poolViews[key]; b != nil {
			b.waiters[wake] = struct{}{}
		}
	}
}

func (l *Ledger) unsubscribe(pools []ipam.PoolKey, wake chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range pools {
		if b := l.poolViews[key]; b != nil {
			delete(b.waiters, wake)
			l.prune(b)
		}
	}
}

// releaseState counts the blocks that the pools have freed, and reports whether another is coming.
func (l *Ledger) releaseState(pools []ipam.PoolKey, holder ipam.Holder) (frees int, isLeaving bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range pools {
		if b := l.poolViews[key]; b == nil {
			frees += l.pruned
		} else {
			frees += b.frees
			isLeaving = isLeaving || b.leavingCount > 0 || l.holdsIn(holder, key)
		}
	}
	return frees, isLeaving
}

// holdsIn reports whether the holder has a record in the pool from an earlier life.
func (l *Ledger) holdsIn(holder ipam.Holder, pool ipam.PoolKey) bool {
	for e := range l.byHolder.findAll(holder) {
		if e.pool() == pool && (e.state() == ipam.StateBound || e.state() == ipam.StateReleasing) {
			return true
		}
	}
	return false
}

// AwaitStored gives the view Options.Silence to show a record that is known to be stored in one of
// the pools, and otherwise restarts the watch.
func (l *Ledger) AwaitStored(ctx context.Context, name ipam.Name, pools []ipam.PoolKey) {
	startTime := l.options.Clock.Now()
	limitedCtx, cancel := context.WithTimeout(ctx, l.options.Silence)
	defer cancel()
	isShown := func() bool { _, ok := l.Record(name); return ok }
	l.Await(limitedCtx, pools, isShown)
	if ctx.Err() == nil && !isShown() {
		l.relistSince(startTime)
	}
}
