package ledger

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// Run feeds the view from a list and watch of all IPAllocations until ctx is done. Relist restarts
// both.
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
	f.stats.Lists++
	return nil
}

// Load makes the view equal to the listed records and unreadable objects, in a process that does
// not watch.
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
	for _, ofPools := range []bool{true, false} { // a block is confirmed if its pool is
		for _, e := range entries {
			if (e.purpose() == ipam.PurposePool) == ofPools {
				l.settleEntry(e)
			}
		}
	}
	for _, e := range entries {
		if !e.confirmed {
			l.updatePoolOf(e) // it may have been, before the store went back
		}
	}
	l.synced = true
}

func (f feed) Resync() error { return nil }

// parseRecord returns the record that an object states, or the fields of it that can be read.
func (l *Ledger) parseRecord(obj any) (ipam.Record, error) {
	r, err := convert.RecordOf(obj)
	if err != nil {
		l.stats.Unreadable++
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
		l.notify(e, Changed)
		l.updatePoolOf(e)
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
	l.countUsage(e, true)
	l.listeners.Notify(Change{Record: r, Pool: r.Pool, Kind: Added, Initial: !l.synced})
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
	l.strays.remove(e)
	delete(b.contestedEntries, e)
	l.count(e, ipam.Usage.Sub)
	l.countUsage(e, false)
	if h := l.holds[r.Name]; h != nil {
		h.setLost(r.UID)
	}
	l.notify(e, Removed)
	l.updatePoolOf(e)
	l.confirmAfterRemoval(e, b)
	l.prune(b)
}

// withhold keeps the blocks of an IPAllocation that cannot be read, but whose blocks can, from being
// handed out. The pool of such a block is not known, so the block is in use in the space of every pool
// and routing domain, until the object can be read or is gone. It is no record: it counts for no holder,
// and no record gives way to it, because nothing shows that they are of the same pool. The record of an
// earlier version of the object stays. It costs O(pools).
func (l *Ledger) withhold(r ipam.Record) {
	if e := l.unreadableByUID[r.UID]; e != nil && e.hasBlocks(r.Blocks()) {
		return
	}
	l.restoreUnreadable(r.UID)
	if !r.Block.IsValid() {
		return
	}
	r.Holder = ipam.Holder{Kind: "IPAllocation", Namespace: r.Name.Namespace, Name: r.Name.Name}
	e := newEntry(r)
	l.unreadableByUID[r.UID] = e
	l.unreadable.addEntry(e)
	for _, b := range l.poolViews {
		if b.space == nil {
			continue
		}
		for part := range e.all() {
			b.space.Use(part.block)
		}
	}
}

// restoreUnreadable ends the withholding of an object's block. It costs O(pools) if there is one.
func (l *Ledger) restoreUnreadable(uid string) {
	e := l.unreadableByUID[uid]
	if e == nil {
		return
	}
	delete(l.unreadableByUID, uid)
	l.unreadable.removeEntry(e)
	for _, b := range l.poolViews {
		for part := range e.all() {
			if b.space != nil && b.pool.CIDR.Overlaps(part.block) {
				b.freeBlock(part.block)
			}
		}
	}
}

// replaceUnreadable withholds the blocks of the listed objects alone, and returns the records of
// their earlier versions.
func (l *Ledger) replaceUnreadable(records []ipam.Record) []*entry {
	listedUIDs := map[string]bool{}
	for _, r := range records {
		listedUIDs[r.UID] = true
	}
	for uid := range l.unreadableByUID {
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

// Revision returns the highest revision that this process has seen, bookmarks included, or "".
func (l *Ledger) Revision() string {
	if source := l.watchSource(); source != nil {
		return source.Revision()
	}
	return ""
}

// IsWatching reports whether the watch runs. While it is interrupted, the store may go back.
func (l *Ledger) IsWatching() bool {
	source := l.watchSource()
	return source == nil || source.IsRunning()
}

func (l *Ledger) watchSource() *kubeutil.VerifiedSource {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.source
}

// Acknowledge judges a write of a record by its version and by Revision when it was sent. If the
// version is not above that, the store has gone back: everything is listed again, and the error is
// ipam.ErrUnconfirmed.
func (l *Ledger) Acknowledge(version, sentRevision string) error {
	if isAbove(version, sentRevision) {
		return nil
	}
	l.GoneBack(sentRevision, version)
	return fmt.Errorf("the store has gone back from revision %s to %s: %w", sentRevision, version, ipam.ErrUnconfirmed)
}

// GoneBack makes the view list all records again, as a read or a write has shown that the store has
// gone back behind a seen revision. If that was noticed already, the call has no effect.
func (l *Ledger) GoneBack(seenRevision, foundRevision string) {
	if source := l.watchSource(); source != nil {
		source.GoneBack(seenRevision, foundRevision)
	}
}

// isAbove reports whether a revision is above another. It returns true if that is not known.
func isAbove(revision, otherRevision string) bool {
	order, err := resourceversion.CompareResourceVersion(revision, otherRevision)
	return err != nil || order > 0
}

// onRollback ends the current watch, whose events are of a history that the store has left.
func (l *Ledger) onRollback(seenRevision, foundRevision string) {
	l.mu.Lock()
	l.noteRollback(seenRevision, foundRevision)
	l.outdated = true
	l.relist()
	l.mu.Unlock()
	if l.options.WentBack != nil {
		l.options.WentBack(foundRevision)
	}
}

func (l *Ledger) noteRollback(seenRevision, foundRevision string) {
	l.stats.Rollbacks++
	l.options.Log.Info("The store of the API server has gone back; listing all IPAllocations again", "seenRevision", seenRevision, "foundRevision", foundRevision)
}

// isRefutedBy reports whether a list shows that the store has gone back: every record that has
// changed has a version above the revision of the view otherwise.
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

// forgetConfirmations makes every record unconfirmed: it may have been recorded after one that is
// back.
func (l *Ledger) forgetConfirmations() {
	for e := range l.byUID.entries() {
		e.confirmed = false
	}
}
