package ledger

import "github.com/cadastre-dev/cadastre/internal/ipam"

// Claimed notes that a live claim names the record, or that none does any more,
// in which case the record is about to be released.
func (l *Ledger) Claimed(record ipam.Name, live bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byName.one(record)
	switch {
	case e != nil:
		l.count(e, ipam.Usage.Sub)
		e.claimed = live
		e.wasClaimed = e.wasClaimed || live
		l.count(e, ipam.Usage.Add)
		b := l.books[e.pool()]
		b.setLeaving(e, !live)
		b.tellAwaiting()
		l.confirm(e)
	case live:
		l.named[record] = true
	default:
		delete(l.named, record)
	}
}

// ClaimsKnown notes that Claimed has been called for every claim that there is: from now
// on a record that no claim has named was made for a claim that was never stored.
func (l *Ledger) ClaimsKnown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claimsKnown = true
}

// NeverClaimed reports whether no claim has named the record since it was made. It is
// false where this process did not watch all the time, and does not know.
func (l *Ledger) NeverClaimed(record ipam.Record) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byUID.one(record.UID)
	return e != nil && e.watched && !e.wasClaimed
}

// Leaving notes that the record is about to be released.
func (l *Ledger) Leaving(record ipam.Name) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.byName.one(record); e != nil {
		l.books[e.pool()].setLeaving(e, true)
	}
}
