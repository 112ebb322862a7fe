package ledger

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// Run feeds the view from a list and watch of all IPAllocations until ctx is done. After Relist it
// begins again, with a list.
func (l *Ledger) Run(ctx context.Context, from cache.ListerWatcher, objects any) {
	source := kubeutil.NewVerifiedSource(from, kubeutil.Verification{WentBack: l.goneBack})
	l.mu.Lock()
	l.source = source
	l.mu.Unlock()
	for ctx.Err() == nil {
		watch, cancel := context.WithCancel(ctx)
		l.mu.Lock()
		l.relist, l.began = cancel, l.options.Clock.Now()
		l.mu.Unlock()
		cache.NewReflectorWithOptions(source, objects, feed{l}, cache.ReflectorOptions{Name: "ipallocations"}).RunWithContext(watch)
		cancel()
	}
}

// feed implements the ledger's side of a reflector, which calls it from one goroutine in the order
// of revisions.
type feed struct{ *Ledger }

var _ cache.ReflectorStore = feed{}

// Add records an IPAllocation.
func (f feed) Add(obj any) error { return f.Update(obj) }

// Update records an IPAllocation, or a new version of one.
func (f feed) Update(obj any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, err := f.read(obj)
	if f.outdated {
		return err
	}
	if err != nil {
		f.withhold(r)
		return err
	}
	e := f.put(r)
	f.restore(r.UID)
	f.resolve(e)
	f.revision = r.Version
	return nil
}

// Delete removes a record: its block is free.
func (f feed) Delete(obj any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, err := f.read(obj)
	if f.outdated {
		return err
	}
	if e := f.byUID.one(r.UID); e != nil {
		f.strike(e)
	}
	f.restore(r.UID)
	if err == nil {
		f.revision = r.Version
	}
	return err
}

// Replace makes the view equal to the list, in one step.
func (f feed) Replace(objs []any, revision string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	records, unreadable := make([]ipam.Record, 0, len(objs)), []ipam.Record(nil)
	for _, obj := range objs {
		r, err := f.read(obj)
		if err != nil {
			unreadable = append(unreadable, r)
			continue // counted, for the metric
		}
		records = append(records, r)
	}
	if f.outdated || f.isRefutedBy(records) {
		f.forgetConfirmations()
	}
	f.replace(records, unreadable)
	f.revision, f.outdated = revision, false
	f.lists++
	return nil
}

// Load makes the view equal to the listed records, and to the listed objects that cannot be read.
// It serves a process that asks questions of a ledger, and does not watch.
func (l *Ledger) Load(records, unreadable []ipam.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replace(records, unreadable)
}

// Enter adds one more record after Load, as the watch would show it.
func (l *Ledger) Enter(r ipam.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resolve(l.put(r))
}

func (l *Ledger) replace(records, unreadable []ipam.Record) {
	listed := make(map[string]bool, len(records))
	for _, r := range records {
		listed[r.UID] = true
	}
	for _, r := range unreadable {
		listed[r.UID] = true
	}
	for e := range l.byUID.all() {
		if !listed[e.uid] {
			l.strike(e)
		}
	}
	entries := make([]*entry, 0, len(records))
	for _, r := range records {
		before := l.byUID.one(r.UID)
		e := l.put(r)
		e.watched = before != nil && before.watched
		entries = append(entries, e)
	}
	entries = append(entries, l.replaceUnreadable(unreadable)...)
	slices.SortStableFunc(entries, poolsFirst) // a block is confirmed if its pool is
	for _, e := range entries {
		l.resolve(e)
	}
	l.synced = true
}

// Resync does nothing: the view is complete as it is.
func (f feed) Resync() error { return nil }

// read returns the record that an object states. An object that cannot be read is counted; its
// record has the fields that were read.
func (l *Ledger) read(obj any) (ipam.Record, error) {
	r, err := convert.RecordOf(obj)
	if err != nil {
		l.unread++
		return r, fmt.Errorf("reading IPAllocation %s: %w", r.Name, err)
	}
	return r, nil
}

// put adds a record, or replaces it by its new version.
func (l *Ledger) put(r ipam.Record) *entry {
	e := l.byUID.one(r.UID)
	switch {
	case e == nil:
		if old := l.byName.one(r.Name); old != nil {
			l.strike(old) // its deletion was missed
			l.restore(old.uid)
		}
		e = l.enter(r)
	case e.version != r.Version:
		before, wasHeld := e.handedOut()
		l.count(e, ipam.Usage.Sub)
		l.unindex(e)
		e.set(r)
		l.index(e)
		l.books[r.Pool].gatewayChanged(e, before, wasHeld)
		l.count(e, ipam.Usage.Add)
		l.books[r.Pool].stateChanged(e)
		l.notify(Change{Record: r, Pool: r.Pool, Kind: Changed})
		l.reopen(e)
	}
	if r.Terminating && r.State != ipam.StateCooling { // one that cools down stays until it is due
		l.books[r.Pool].setLeaving(e, true)
	}
	return e
}

func (l *Ledger) enter(r ipam.Record) *entry {
	e := newEntry(r)
	e.claimed = l.named[r.Name]
	e.watched = l.synced && l.claimsKnown
	e.wasClaimed = e.claimed
	delete(l.named, r.Name)
	l.byUID.add(e)
	l.byName.add(e)
	l.index(e)
	b := l.book(r.Pool)
	b.take(e)
	b.tellAwaiting()
	if h := l.holds[r.Name]; h != nil {
		h.uncount()
	} else if !b.spreading.IsZero() {
		b.crowded(l.options.Clock.Now())
	}
	l.count(e, ipam.Usage.Add)
	l.countUsage(e, ipam.Usage.Add)
	l.notify(Change{Record: r, Pool: r.Pool, Kind: Added, Initial: !l.synced})
	return e
}

func (l *Ledger) strike(e *entry) {
	r := e.record()
	l.byUID.drop(e)
	l.byName.drop(e)
	l.unindex(e)
	if e.claimed {
		l.named[r.Name] = true
	}
	b := l.books[r.Pool]
	b.drop(e)
	delete(b.unconfirmed, e)
	delete(b.contested, e)
	l.count(e, ipam.Usage.Sub)
	l.countUsage(e, ipam.Usage.Sub)
	if h := l.holds[r.Name]; h != nil {
		h.lose(r.UID)
	}
	l.notify(Change{Record: r, Pool: r.Pool, Kind: Removed})
	l.confirmAfter(e, b)
	l.prune(b)
}

// unreadable holds the IPAllocations that cannot be read but whose block can. The pool of such a
// block is not known, so the block is in use in the space of every pool and routing domain, until
// the object can be read or is gone. Such an object is no record: it counts for no holder, and no
// record gives way to it, because nothing shows that they are of the same pool.
type unreadable struct {
	// book has the blocks of these objects, and no space.
	book  *book
	byUID map[string]*entry
}

func newUnreadable() unreadable {
	return unreadable{book: newBook(ipam.PoolKey{}, nil), byUID: map[string]*entry{}}
}

// withhold keeps the block of an IPAllocation that cannot be read from being handed out. The record
// of an earlier version of the object stays. It costs O(pools).
func (l *Ledger) withhold(r ipam.Record) {
	if e := l.unreadable.byUID[r.UID]; e != nil && e.block == r.Block {
		return
	}
	l.restore(r.UID)
	if !r.Block.IsValid() {
		return
	}
	r.Holder = ipam.Holder{Kind: "IPAllocation", Namespace: r.Name.Namespace, Name: r.Name.Name}
	e := newEntry(r)
	l.unreadable.byUID[r.UID] = e
	l.unreadable.book.take(e)
	for _, b := range l.books {
		if b.space != nil {
			b.space.Use(e.block)
		}
	}
}

// restore ends the withholding of an object's block. It costs O(pools) if the block was withheld,
// else nothing.
func (l *Ledger) restore(uid string) {
	e := l.unreadable.byUID[uid]
	if e == nil {
		return
	}
	delete(l.unreadable.byUID, uid)
	l.unreadable.book.drop(e)
	for _, b := range l.books {
		if b.space != nil && b.pool.CIDR.Overlaps(e.block) {
			b.free(e.block)
		}
	}
}

// replaceUnreadable withholds the blocks of the listed objects, and of no others. It returns the
// existing records of earlier versions of these objects.
func (l *Ledger) replaceUnreadable(listed []ipam.Record) []*entry {
	there := map[string]bool{}
	for _, r := range listed {
		there[r.UID] = true
	}
	for uid := range l.unreadable.byUID {
		if !there[uid] {
			l.restore(uid)
		}
	}
	var earlier []*entry
	for _, r := range listed {
		l.withhold(r)
		if e := l.byUID.one(r.UID); e != nil {
			earlier = append(earlier, e)
		}
	}
	return earlier
}

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

// IsWatching reports whether the watch that has made the view runs. While the watch is interrupted,
// the store may go back, and the records that the view shows may no longer exist.
func (l *Ledger) IsWatching() bool {
	l.mu.Lock()
	source := l.source
	l.mu.Unlock()
	return source == nil || source.IsRunning()
}

// Acknowledge judges a write of a record by the version in which the API server has stored it and
// by Revision as it was when the write was sent. If the version is not above that revision, the
// store has gone back, and the view is of a state that no longer exists: everything is listed
// again, and the error is ipam.ErrUnconfirmed.
func (l *Ledger) Acknowledge(version, sent string) error {
	if isAbove(version, sent) {
		return nil
	}
	l.source.GoneBack(sent, version)
	return fmt.Errorf("the store has gone back from revision %s to %s: %w", sent, version, ipam.ErrUnconfirmed)
}

// isAbove reports whether a revision is above another. It returns true if that is not known.
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

// isRefutedBy reports whether a list shows that the store has gone back since the view was right:
// every record that has changed since then has a version above the revision of the view.
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

// forgetConfirmations puts the view into the state of a process that has just started: a record
// that was confirmed may have been recorded after one that is back.
func (l *Ledger) forgetConfirmations() {
	for e := range l.byUID.all() {
		e.confirmed = false
	}
}

// Rollbacks returns the number of times that the store has gone back.
func (l *Ledger) Rollbacks() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rollbacks
}
