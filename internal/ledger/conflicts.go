package ledger

import (
	"context"
	"time"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// conflictAfter is how long two records may overlap before that counts as a conflict:
// longer than it takes to give up a record that has lost.
const conflictAfter = 10 * time.Second

// contestedSince is since when a record is contested that the watch shows now. Of one
// that the first list has, nobody knows: it counts as a conflict at once.
func (l *Ledger) contestedSince() time.Time {
	if !l.synced {
		return time.Time{}
	}
	return l.options.now()
}

// Conflict is the record that is in conflict with this one, nil where none is: they
// overlap in the same pool or routing domain, and have for longer than a lost race
// lasts. Both records have it, the one that was recorded first as well.
func (l *Ledger) Conflict(record ipam.Record) *ipam.TakenError {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byUID.one(record.UID)
	if e == nil {
		return nil
	}
	other := l.books[e.pool()].conflict(e, l.options.now())
	if other == nil {
		return nil
	}
	return &ipam.TakenError{Block: e.block, Pool: e.pool(), Holder: other.holder(), Overlap: other.block}
}

// contest notes that something else was recorded on the block of a record when the view
// first showed it, whether or not the record came to be confirmed: a live claim that names
// it has it confirmed all the same.
func (l *Ledger) contest(b *book, e *entry) {
	if _, noted := b.contested[e]; !noted {
		b.contested[e] = l.contestedSince()
	}
}

// endContests forgets those contests that are over now that a record is gone.
func (b *book) endContests(gone *entry) {
	if len(b.contested) == 0 {
		return
	}
	for e := range b.overlapping(gone.block) {
		if _, noted := b.contested[e]; noted && b.rival(e.block, e.key()) == nil {
			delete(b.contested, e)
		}
	}
}

// conflict is an entry that is in conflict with this one.
func (b *book) conflict(e *entry, now time.Time) *entry {
	if len(b.contested) == 0 {
		return nil
	}
	lasts := func(e *entry) bool {
		since, ok := b.contested[e]
		return ok && now.Sub(since) >= conflictAfter
	}
	itself := lasts(e)
	for other := range b.overlapping(e.block) {
		if other != e && other.hold == nil && (itself || lasts(other)) {
			return other
		}
	}
	return nil
}

// Conflicts are the UIDs of all records that are in conflict with another one.
func (l *Ledger) Conflicts() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := map[string]bool{}
	for _, b := range l.books {
		for e := range b.contested {
			if other := b.conflict(e, l.options.now()); other != nil {
				found[e.uid], found[other.uid] = true, true
			}
		}
	}
	return found
}

// NotifyConflicts notifies listeners of each record that comes to be in conflict, or is
// in conflict no more, until the context ends.
func (l *Ledger) NotifyConflicts(ctx context.Context) {
	ticker := l.options.Clock.NewTicker(conflictAfter)
	defer ticker.Stop()
	var before map[string]bool
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			before = l.notifyConflicts(before)
		}
	}
}

// notifyConflicts notifies of what has changed since before, and returns what is.
func (l *Ledger) notifyConflicts(before map[string]bool) map[string]bool {
	now := l.Conflicts()
	l.mu.Lock()
	defer l.mu.Unlock()
	notify := func(uids, others map[string]bool) {
		for uid := range uids {
			if e := l.byUID.one(uid); e != nil && !others[uid] {
				l.notify(Change{Record: e.record(), Pool: e.pool(), Kind: Changed})
			}
		}
	}
	notify(now, before)
	notify(before, now)
	return now
}
