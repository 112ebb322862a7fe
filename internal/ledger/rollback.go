package ledger

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Revision returns the highest revision of the store that this process has seen, bookmarks
// included; empty if it has seen none.
func (l *Ledger) Revision() string {
	l.mu.Lock()
	source := l.source
	l.mu.Unlock()
	if source == nil {
		return ""
	}
	return source.Revision()
}

// IsWatching reports whether the watch runs that has made the view. While it is
// interrupted the store may go back, and what the view shows may not be there any more.
func (l *Ledger) IsWatching() bool {
	l.mu.Lock()
	source := l.source
	l.mu.Unlock()
	return source == nil || source.IsRunning()
}

// Acknowledge judges a write of a record by the version in which the API server has stored
// it and by Revision as it was when the write was sent. If the version is not above that
// revision, the store has gone back, and the view is of what is no more: everything is
// listed again, and the error is ipam.ErrUnconfirmed.
func (l *Ledger) Acknowledge(version, sent string) error {
	if isAbove(version, sent) {
		return nil
	}
	l.source.GoneBack(sent, version)
	return fmt.Errorf("the store has gone back from revision %s to %s: %w", sent, version, ipam.ErrUnconfirmed)
}

// isAbove reports whether a revision is above another; also where that is not known.
func isAbove(revision, than string) bool {
	order, err := resourceversion.CompareResourceVersion(revision, than)
	return err != nil || order > 0
}

// goneBack ends the current watch, whose events are of a history that the store has left.
func (l *Ledger) goneBack(seen, found string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteRollback(seen, found)
	l.outdated = true
	l.relist()
}

func (l *Ledger) noteRollback(seen, found string) {
	l.rollbacks++
	l.options.Log.Info("The store of the API server has gone back; listing all IPAllocations again", "seenRevision", seen, "foundRevision", found)
}

// isRefutedBy reports whether a list shows that the store has gone back since the view was
// right: what has changed since then has a version above the revision of the view.
func (l *Ledger) isRefutedBy(records []ipam.Record) bool {
	for _, r := range records {
		if e := l.byUID.one(r.UID); e != nil && e.version == r.Version {
			continue
		}
		if !isAbove(r.Version, l.revision) {
			l.noteRollback(l.revision, r.Version)
			return true
		}
	}
	return false
}

// forgetConfirmations makes the view that of a process that has just started: a record that
// was confirmed may have been recorded after one that is back.
func (l *Ledger) forgetConfirmations() {
	for e := range l.byUID.all() {
		e.confirmed = false
	}
}

// Rollbacks returns how often the store has gone back.
func (l *Ledger) Rollbacks() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rollbacks
}
