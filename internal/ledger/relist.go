package ledger

import "time"

// Relist ends the current watch, which Run follows by a new list.
func (l *Ledger) Relist() { l.relistSince(l.options.Clock.Now()) }

// relistSince ends the current watch if it began before the given time. One that
// is younger has been begun anew by somebody else who misses a record.
func (l *Ledger) relistSince(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.began.After(t) {
		return
	}
	l.options.Log.Info("The watch of IPAllocations does not show an acknowledged record; listing all of them again", "watchingSince", l.began)
	l.relists++
	l.relist()
}

// abandonedFor is how long a record may take to turn up whose creation failed
// ambiguously. An API server gives up a request after one minute.
const abandonedFor = 10 * time.Minute
