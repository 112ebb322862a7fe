package ledger

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/client-go/tools/cache"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// Run feeds the view from a list and watch of all IPAllocations until ctx is
// done. After Relist it begins anew, with a list.
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

// feed is the ledger's side of a reflector, which calls it from one goroutine
// in the order of revisions.
type feed struct{ *Ledger }

var _ cache.ReflectorStore = feed{}

// Add enters a record.
func (f feed) Add(obj any) error { return f.Update(obj) }

// Update enters a record, or a new version of one.
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

// Delete strikes a record: its block is free.
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

// Replace makes the view what the list says, in one step.
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

// Load makes the view what the records say, which were listed, with those that cannot be
// read: for a process that asks questions of a ledger, and does not watch.
func (l *Ledger) Load(records, unreadable []ipam.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replace(records, unreadable)
}

// Enter takes over one more record after Load, as the watch would show it.
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
	slices.SortStableFunc(entries, poolsFirst) // a block is confirmed where its pool is
	for _, e := range entries {
		l.resolve(e)
	}
	l.synced = true
}

// Resync does nothing: the view is whole as it is.
func (f feed) Resync() error { return nil }

// read is the record that an object states. One that cannot be read is counted; the record
// has what was read.
func (l *Ledger) read(obj any) (ipam.Record, error) {
	r, err := convert.RecordOf(obj)
	if err != nil {
		l.unread++
		return r, fmt.Errorf("reading IPAllocation %s: %w", r.Name, err)
	}
	return r, nil
}

// put enters a record or its new version.
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
