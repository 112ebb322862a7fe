package live

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

const (
	// soon holds the time for which changes are gathered before they are published.
	soon = 50 * time.Millisecond
	// share bounds the part of the time that publishing takes: one in so many.
	share = 5
	// usageEvery holds the shortest time between two publications of the usage of a pool.
	usageEvery = time.Second
)

// The sources of the usage of a pool.
const (
	fromRecords = "records"
	fromStatus  = "status"
)

// publishAll publishes changes until ctx is done.
func (l *Live) publishAll(ctx context.Context) {
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-due:
		}
		pause(ctx, l.clock, soon)
		began := l.clock.Now()
		delay := l.publish()
		if took := l.clock.Since(began); took*share > soon {
			pause(ctx, l.clock, took*(share-1))
		}
		due = nil
		if delay > 0 {
			due = l.clock.After(delay)
		}
	}
}

// pause waits for a time, or until ctx is done.
func pause(ctx context.Context, clock clock.Clock, duration time.Duration) {
	select {
	case <-ctx.Done():
	case <-clock.After(duration):
	}
}

// publish publishes the changes, and returns the time until the rest is due; 0: there is none.
func (l *Live) publish() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.judge()
	return l.publishChanges()
}

// publishChanges does the work of publish. The lock is held.
func (l *Live) publishChanges() time.Duration {
	change := &Change{}
	if unread := l.unreadMessage(); !reflect.DeepEqual(unread, l.state.shown.unread) {
		l.state.shown.unread, change.unread = unread, &unread
	}
	if isCounted := l.countsRecords(); isCounted != l.state.shown.isCounted {
		l.state.shown.isCounted, l.state.structure = isCounted, true
	}
	delay := l.updateStructure(change)
	delay = sooner(delay, l.updateUsage(change))
	l.updateBlocks(change)
	if !change.isEmpty() {
		for s := range l.subscribers {
			l.offer(s, change)
		}
	}
	return delay
}

func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// updateStructure shows pools and claims as they are now. If only the operator's counts have
// changed, it shows them once in a while.
func (l *Live) updateStructure(change *Change) time.Duration {
	s, now := &l.state, l.clock.Now()
	if !s.structure {
		if !s.status {
			return 0
		}
		if since := now.Sub(s.shown.statusAt); since < usageEvery {
			return usageEvery - since
		}
	}
	s.structure, s.status, s.shown.statusAt = false, false, now
	objects := s.objects(s.poolRecords, l.unread())
	objects.Mentioned = s.mentioned()
	s.shown.register = register.Build(objects)
	pools := map[ipam.PoolKey]bool{}
	for _, pool := range s.shown.register.Pools {
		pools[pool.Key] = true
		l.updatePool(change, pool, s.shown.isCounted)
	}
	for key, was := range s.shown.pools {
		if !pools[key] {
			change.gone.Pools = append(change.gone.Pools, was.ID)
			delete(s.shown.pools, key)
		}
	}
	slices.Sort(change.gone.Pools)
	l.updateClaims(change)
	return 0
}

// updatePool shows a pool that is new or has changed.
func (l *Live) updatePool(change *Change, pool *register.Pool, isCounted bool) {
	s := &l.state
	now, was := poolMessage(pool), s.shown.pools[pool.Key]
	if was != nil {
		if was.Domain != now.Domain || was.CIDR != now.CIDR || was.First != now.First || was.Last != now.Last || !slices.Equal(was.Withheld, now.Withheld) {
			maps.Copy(s.changed, s.held[pool.Key])
			s.used[pool.Key] = true
		}
		now.Usage, now.UsageFrom = was.Usage, was.UsageFrom
		if isCounted && was.UsageFrom == fromRecords && reflect.DeepEqual(was.Pool, now) {
			s.used[pool.Key] = true // it may have other pools below it
			return
		}
	}
	now.Usage, now.UsageFrom = l.usage(pool, isCounted)
	if was != nil && reflect.DeepEqual(was.Pool, now) {
		return
	}
	delete(s.used, pool.Key)
	s.shown.pools[pool.Key] = &shownPool{now, l.clock.Now()}
	change.pools = append(change.pools, now)
}

// updateUsage shows the usage of the pools of which blocks have changed, and of the pools above
// them: each once in a while.
func (l *Live) updateUsage(change *Change) time.Duration {
	s, now := &l.state, l.clock.Now()
	if !s.shown.isCounted {
		clear(s.used) // the operator counts
		return 0
	}
	var delay time.Duration
	var pools []Pool
	for key := range s.used {
		for pool := s.shown.register.Pool(key); pool != nil; pool = pool.Parent {
			s.used[pool.Key] = true
		}
	}
	for key := range s.used {
		was, pool := s.shown.pools[key], s.shown.register.Pool(key)
		if was == nil || pool == nil {
			delete(s.used, key)
			continue
		}
		if since := now.Sub(was.at); since < usageEvery {
			delay = sooner(delay, usageEvery-since)
			continue
		}
		delete(s.used, key)
		usage, from := l.usage(pool, true)
		if reflect.DeepEqual(usage, was.Usage) {
			continue
		}
		was.Usage, was.UsageFrom, was.at = usage, from, now
		pools = append(pools, was.Pool)
	}
	slices.SortFunc(pools, func(a, b Pool) int { return cmp.Compare(a.ID, b.ID) })
	change.pools = append(change.pools, pools...)
	return delay
}

// updateBlocks shows the blocks that have changed, or whose holder has changed its Cluster.
func (l *Live) updateBlocks(change *Change) {
	s := &l.state
	defer clear(s.changed)
	defer clear(s.regrouped)
	if len(l.subscribers) == 0 {
		return
	}
	if len(s.regrouped) > 0 {
		for uid, record := range s.records {
			if s.regrouped[record.Holder] {
				s.changed[uid] = record
			}
		}
	}
	var records []*register.Record
	for uid, last := range s.changed {
		if record := s.records[uid]; record != nil {
			records = append(records, record.Parts()...)
			continue
		}
		for _, part := range last.Parts() {
			change.gone.Blocks = append(change.gone.Blocks, blockID(part))
		}
	}
	slices.SortFunc(records, register.ByBlock)
	slices.Sort(change.gone.Blocks)
	for _, record := range records {
		change.blocks = append(change.blocks, blockMessage(s.shown.register, record, s.clusters[record.Holder]))
	}
}

// updateClaims shows the waiting claims.
func (l *Live) updateClaims(change *Change) {
	s := &l.state
	waiting := map[string]Waiting{}
	for _, w := range s.waiters() {
		waiting[w.ID] = w.message(s.shown.register)
	}
	for uid, now := range waiting {
		if was, ok := s.shown.claims[uid]; !ok || !reflect.DeepEqual(was, now) {
			change.claims = append(change.claims, now)
		}
	}
	for uid := range s.shown.claims {
		if _, waits := waiting[uid]; !waits {
			change.gone.Claims = append(change.gone.Claims, uid)
		}
	}
	s.shown.claims = waiting
	slices.SortFunc(change.claims, bySince)
	slices.Sort(change.gone.Claims)
}

// countsRecords reports whether the usage is counted from the records, as all of them have been read.
// Otherwise the operator counts it.
func (l *Live) countsRecords() bool {
	for _, f := range l.feeds {
		if f.resource == "ipallocations" {
			now := f.stand()
			return now.decided && now.unread == nil
		}
	}
	return true
}

// usage returns the usage of a pool, and its source; it returns nil if the usage is not known.
func (l *Live) usage(pool *register.Pool, isCounted bool) (*Usage, string) {
	if !pool.IsKnown() {
		return nil, ""
	}
	if !isCounted {
		usage, ok := pool.UsageOfStatus()
		if !ok {
			return nil, ""
		}
		return usageMessage(usage, false), fromStatus
	}
	usage, ok := l.state.counted(pool).Usage()
	if !ok {
		return nil, ""
	}
	return usageMessage(usage, true), fromRecords
}

// poolID returns the name of a pool in messages.
func poolID(key ipam.PoolKey) string {
	if key.Namespace == "" {
		return string(key.Kind) + "/" + key.Name
	}
	return string(key.Kind) + "/" + key.Namespace + "/" + key.Name
}

// blockID returns the name of a block in messages: the UID of its record, with the block if that is
// not the first one of the record.
func blockID(record *register.Record) string {
	if record.IsFirst() {
		return record.UID
	}
	return record.UID + "/" + record.Block.String()
}

// childOf returns the pool whose space a record represents; it is empty for the record of a
// claim.
func childOf(record *register.Record) string {
	if record.Purpose != ipam.PurposePool {
		return ""
	}
	return poolID(convert.PoolOf(record.Holder))
}
