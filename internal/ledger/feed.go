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
func (l *Ledger) Run(ctx context.Context, listerWatcher cache.ListerWatcher, objects any) {
	source := kubeutil.NewVerifiedSource(listerWatcher, kubeutil.Verification{WentBack: l.onRollback})
	l.mu.Lock()
	l.source = source
	l.mu.Unlock()
	for ctx.Err() == nil {
		watchCtx, cancel := context.WithCancel(ctx)
		l.mu.Lock()
		l.relist, l.watchStart = cancel, l.options.Clock.Now()
		l.mu.Unlock()
		cache.NewReflectorWithOptions(source, objects, feed{l}, cache.ReflectorOptions{Name: "ipallocations"}).RunWithContext(watchCtx)
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
	r, err := f.parseRecord(obj)
	if f.outdated {
		return err
	}
	if err != nil {
		f.withhold(r)
		return err
	}
	e := f.putRecord(r)
	f.restoreUnreadable(r.UID)
	f.settleEntry(e)
	f.revision = r.Version
	return nil
}

// Delete removes a record: its block is free.
func (f feed) Delete(obj any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, err := f.parseRecord(obj)
	if f.outdated {
		return err
	}
	if e := f.byUID.find(r.UID); e != nil {
		f.removeRecord(e)
	}
	f.restoreUnreadable(r.UID)
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
		r, err := f.parseRecord(obj)
		if err != nil {
			unreadable = append(unreadable, r)
			continue // counted, for the metric
		}
		records = append(records, r)
	}
	if f.outdated || f.isRefutedBy(records) {
		f.forgetConfirmations()
	}
	f.replaceRecords(records, unreadable)
	f.revision, f.outdated = revision, false
	f.lists++
	return nil
}

// Load makes the view equal to the listed records, and to the listed objects that cannot be read.
// It serves a process that asks questions of a ledger, and does not watch.
func (l *Ledger) Load(records, unreadable []ipam.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replaceRecords(records, unreadable)
}

// PutRecord adds one more record after Load, as the watch would show it.
func (l *Ledger) PutRecord(r ipam.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settleEntry(l.putRecord(r))
}

func (l *Ledger) replaceRecords(records, unreadable []ipam.Record) {
	listedUIDs := make(map[string]bool, len(records))
	for _, r := range records {
		listedUIDs[r.UID] = true
	}
	for _, r := range unreadable {
		listedUIDs[r.UID] = true
	}
	for e := range l.byUID.entries() {
		if !listedUIDs[e.uid] {
			l.removeRecord(e)
		}
	}
	entries := make([]*entry, 0, len(records))
	for _, r := range records {
		previous := l.byUID.find(r.UID)
		e := l.putRecord(r)
		e.watched = previous != nil && previous.watched
		entries = append(entries, e)
	}
	entries = append(entries, l.replaceUnreadable(unreadable)...)
	slices.SortStableFunc(entries, comparePoolsFirst) // a block is confirmed if its pool is
	for _, e := range entries {
		l.settleEntry(e)
	}
	l.synced = true
}

// Resync does nothing: the view is complete as it is.
func (f feed) Resync() error { return nil }

// parseRecord returns the record that an object states. An object that cannot be read is counted; its
// record has the fields that were read.
func (l *Ledger) parseRecord(obj any) (ipam.Record, error) {
	r, err := convert.RecordOf(obj)
	if err != nil {
		l.unreadableCount++
		return r, fmt.Errorf("reading IPAllocation %s: %w", r.Name, err)
	}
	return r, nil
}

// putRecord adds a record, or replaces it by its new version.
func (l *Ledger) putRecord(r ipam.Record) *entry {
	e := l.byUID.find(r.UID)
	switch {
	case e == nil:
		if previous := l.byName.find(r.Name); previous != nil {
			l.removeRecord(previous) // its deletion was missed
			l.restoreUnreadable(previous.uid)
		}
		e = l.addRecord(r)
	case e.version != r.Version:
		previousGateway, wasHeld := e.gatewayInUse()
		l.count(e, ipam.Usage.Sub)
		l.unindex(e)
		e.setRecord(r)
		l.index(e)
		l.poolViews[r.Pool].onGatewayChange(e, previousGateway, wasHeld)
		l.count(e, ipam.Usage.Add)
		l.poolViews[r.Pool].onStateChange(e)
		l.notify(Change{Record: r, Pool: r.Pool, Kind: Changed})
		l.confirmBlocksOf(e)
	}
	if r.Terminating && r.State != ipam.StateCooling { // one that cools down stays until it is due
		l.poolViews[r.Pool].setLeaving(e, true)
	}
	return e
}

func (l *Ledger) addRecord(r ipam.Record) *entry {
	e := newEntry(r)
	e.claimed = l.claimedNames[r.Name]
	e.watched = l.synced && l.claimsKnown
	e.wasClaimed = e.claimed
	delete(l.claimedNames, r.Name)
	l.byUID.add(e)
	l.byName.add(e)
	l.index(e)
	b := l.poolViewFor(r.Pool)
	b.addEntry(e)
	b.wakeWaiters()
	if h := l.holds[r.Name]; h != nil {
		h.subtractUsage()
	} else if !b.spreadUntil.IsZero() {
		b.extendSpreading(l.options.Clock.Now())
	}
	l.count(e, ipam.Usage.Add)
	l.countUsage(e, ipam.Usage.Add)
	l.notify(Change{Record: r, Pool: r.Pool, Kind: Added, Initial: !l.synced})
	return e
}

func (l *Ledger) removeRecord(e *entry) {
	r := e.record()
	l.byUID.remove(e)
	l.byName.remove(e)
	l.unindex(e)
	if e.claimed {
		l.claimedNames[r.Name] = true
	}
	b := l.poolViews[r.Pool]
	b.removeEntry(e)
	delete(b.unconfirmedEntries, e)
	delete(b.contestedEntries, e)
	l.count(e, ipam.Usage.Sub)
	l.countUsage(e, ipam.Usage.Sub)
	if h := l.holds[r.Name]; h != nil {
		h.setLost(r.UID)
	}
	l.notify(Change{Record: r, Pool: r.Pool, Kind: Removed})
	l.confirmAfterRemoval(e, b)
	l.prune(b)
}

// unreadable holds the IPAllocations that cannot be read but whose block can. The pool of such a
// block is not known, so the block is in use in the space of every pool and routing domain, until
// the object can be read or is gone. Such an object is no record: it counts for no holder, and no
// record gives way to it, because nothing shows that they are of the same pool.
type unreadable struct {
	// view has the blocks of these objects, and no space.
	view  *poolView
	byUID map[string]*entry
}

func newUnreadable() unreadable {
	return unreadable{view: newPoolView(ipam.PoolKey{}, nil), byUID: map[string]*entry{}}
}

// withhold keeps the block of an IPAllocation that cannot be read from being handed out. The record
// of an earlier version of the object stays. It costs O(pools).
func (l *Ledger) withhold(r ipam.Record) {
	if e := l.unreadable.byUID[r.UID]; e != nil && e.block == r.Block {
		return
	}
	l.restoreUnreadable(r.UID)
	if !r.Block.IsValid() {
		return
	}
	r.Holder = ipam.Holder{Kind: "IPAllocation", Namespace: r.Name.Namespace, Name: r.Name.Name}
	e := newEntry(r)
	l.unreadable.byUID[r.UID] = e
	l.unreadable.view.addEntry(e)
	for _, b := range l.poolViews {
		if b.space != nil {
			b.space.Use(e.block)
		}
	}
}

// restoreUnreadable ends the withholding of an object's block. It costs O(pools) if the block was withheld,
// else nothing.
func (l *Ledger) restoreUnreadable(uid string) {
	e := l.unreadable.byUID[uid]
	if e == nil {
		return
	}
	delete(l.unreadable.byUID, uid)
	l.unreadable.view.removeEntry(e)
	for _, b := range l.poolViews {
		if b.space != nil && b.pool.CIDR.Overlaps(e.block) {
			b.freeBlock(e.block)
		}
	}
}

// replaceUnreadable withholds the blocks of the listed objects, and of no others. It returns the
// existing records of earlier versions of these objects.
func (l *Ledger) replaceUnreadable(records []ipam.Record) []*entry {
	listedUIDs := map[string]bool{}
	for _, r := range records {
		listedUIDs[r.UID] = true
	}
	for uid := range l.unreadable.byUID {
		if !listedUIDs[uid] {
			l.restoreUnreadable(uid)
		}
	}
	var entries []*entry
	for _, r := range records {
		l.withhold(r)
		if e := l.byUID.find(r.UID); e != nil {
			entries = append(entries, e)
		}
	}
	return entries
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
func (l *Ledger) Acknowledge(version, sentRevision string) error {
	if isAbove(version, sentRevision) {
		return nil
	}
	l.source.GoneBack(sentRevision, version)
	return fmt.Errorf("the store has gone back from revision %s to %s: %w", sentRevision, version, ipam.ErrUnconfirmed)
}

// isAbove reports whether a revision is above another. It returns true if that is not known.
func isAbove(revision, otherRevision string) bool {
	order, err := resourceversion.CompareResourceVersion(revision, otherRevision)
	return err != nil || order > 0
}

// onRollback ends the current watch, whose events are of a history that the store has left.
func (l *Ledger) onRollback(seenRevision, foundRevision string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteRollback(seenRevision, foundRevision)
	l.outdated = true
	l.relist()
}

func (l *Ledger) noteRollback(seenRevision, foundRevision string) {
	l.rollbacks++
	l.options.Log.Info("The store of the API server has gone back; listing all IPAllocations again", "seenRevision", seenRevision, "foundRevision", foundRevision)
}

// isRefutedBy reports whether a list shows that the store has gone back since the view was right:
// every record that has changed since then has a version above the revision of the view.
func (l *Ledger) isRefutedBy(records []ipam.Record) bool {
	for _, r := range records {
		if e := l.byUID.find(r.UID); e != nil && e.version == r.Version {
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
	for e := range l.byUID.entries() {
		e.confirmed = false
	}
}

// Rollbacks returns the number of times that the store has gone back.
func (l *Ledger) Rollbacks() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rollbacks
}
