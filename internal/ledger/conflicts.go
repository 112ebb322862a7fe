package ledger

import (
	"context"
	"net/netip"
	"time"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// conflictAfter is longer than it takes to give up a record that has lost.
const conflictAfter = 10 * time.Second

// Conflict returns an error that names another record that has overlapped this one, in the same
// pool or routing domain, for longer than a lost race lasts. Both records get the error.
func (l *Ledger) Conflict(record ipam.Record) *ipam.TakenError {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byUID.find(record.UID)
	if e == nil {
		return nil
	}
	b := l.poolViews[e.pool()]
	if other, overlap := b.conflict(e, l.options.Clock.Now()); other != nil {
		return b.takenError(other, overlap, e.partIn(overlap))
	}
	return nil
}

// markContested notes that another record overlapped this one when the view first showed it, also
// if a live claim confirms it nevertheless.
func (l *Ledger) markContested(b *poolView, e *entry) {
	if _, ok := b.contestedEntries[e]; ok {
		return
	}
	b.contestedEntries[e] = time.Time{} // unknown in the first list: in conflict at once
	if l.synced {
		b.contestedEntries[e] = l.options.Clock.Now()
	}
}

// endContests removes the contests that are over now that a record is gone.
func (b *poolView) endContests(removedEntry *entry) {
	if len(b.contestedEntries) == 0 {
		return
	}
	for _, e := range b.overlappingRecords(removedEntry) {
		if _, ok := b.contestedEntries[e]; ok && !b.hasRival(e) {
			delete(b.contestedEntries, e)
		}
	}
}

// conflict returns an entry that is in conflict with this one, with its block, or nil.
func (b *poolView) conflict(e *entry, now time.Time) (other *entry, overlap netip.Prefix) {
	if len(b.contestedEntries) == 0 {
		return nil, netip.Prefix{}
	}
	isLasting := func(e *entry) bool {
		since, ok := b.contestedEntries[e]
		return ok && now.Sub(since) >= conflictAfter
	}
	isOldConflict := isLasting(e)
	for overlap, other := range b.overlappingRecords(e) {
		if e.excludes(other) && (isOldConflict || isLasting(other)) {
			return other, overlap
		}
	}
	return nil, netip.Prefix{}
}

// Conflicts returns the UIDs of all records that are in conflict with another one.
func (l *Ledger) Conflicts() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	uids := map[string]bool{}
	for _, b := range l.poolViews {
		for e := range b.contestedEntries {
			if other, _ := b.conflict(e, l.options.Clock.Now()); other != nil {
				uids[e.uid], uids[other.uid] = true, true
			}
		}
	}
	return uids
}

// NotifyConflicts notifies the listeners of each record that gets into conflict or out of it, until
// ctx is done.
func (l *Ledger) NotifyConflicts(ctx context.Context) {
	ticker := l.options.Clock.NewTicker(conflictAfter)
	defer ticker.Stop()
	var previous map[string]bool
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			previous = l.notifyConflicts(previous)
		}
	}
}

// notifyConflicts notifies the listeners of the changes since before, and returns the conflicts.
func (l *Ledger) notifyConflicts(previous map[string]bool) map[string]bool {
	current := l.Conflicts()
	l.mu.Lock()
	defer l.mu.Unlock()
	notify := func(uids, otherUIDs map[string]bool) {
		for uid := range uids {
			if e := l.byUID.find(uid); e != nil && !otherUIDs[uid] {
				l.notify(e, Changed)
			}
		}
	}
	notify(current, previous)
	notify(previous, current)
	return current
}

// strays holds, by block, the unconfirmed records of pools of the in-cluster provider's kinds. Such a
// pool leaves out what another pool of its routing domain has, and can have an IPAddress there from
// before: the other pool must not hand it out.
type strays map[netip.Prefix]map[*entry]bool

func (s strays) add(e *entry) {
	if !e.pool().Kind.IsInCluster() {
		return
	}
	if s[e.block] == nil {
		s[e.block] = map[*entry]bool{}
	}
	s[e.block][e] = true
}

func (s strays) remove(e *entry) {
	delete(s[e.block], e)
	if len(s[e.block]) == 0 {
		delete(s, e.block)
	}
}

// strayOn returns the record of a pool of the same routing domain that has a block as a stray, or nil.
func (l *Ledger) strayOn(b *poolView, block netip.Prefix) *entry {
	for e := range l.strays[block] {
		if other := l.known(e.pool()); other != nil && other.Home == b.pool.Home {
			return e
		}
	}
	return nil
}

// passStrays returns the first free block from a free one on that no stray has. It costs O(strays).
func (l *Ledger) passStrays(b *poolView, block netip.Prefix) (netip.Prefix, bool) {
	for range len(l.strays) {
		if l.strayOn(b, block) == nil {
			return block, true
		}
		block, _ = b.space.FindFrom(offsetAddr(block, 1), block.Bits()) // there is one: it wraps round
	}
	return block, l.strayOn(b, block) == nil
}
