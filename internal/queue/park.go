package queue

import (
	"maps"
	"slices"
	"time"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

const (
	// firstRetry is after how long a waiter is tried again that was parked for the first
	// time. It is twice as long each time, up to lastRetry.
	firstRetry = time.Second
	lastRetry  = time.Minute
	// tolerated is how often in a row an attempt may fail for a reason that passes by
	// itself before the waiter is parked all the same.
	tolerated = 4
)

// Parked is what follows when a waiter is parked.
type Parked struct {
	// Pools for which it waited: another's turn may have come there.
	Pools []ipam.PoolKey
	// Retry is after how long it is to be tried again, unless Resume says so before.
	Retry time.Duration
}

// Park has a waiter lose its turn, because it cannot be served for another reason than
// want of room: nobody waits behind it from now on. Keep, Resume and a change of what
// it wants end that. The refusal, which may be nil, is what its status says.
func (q *lines) Park(holder ipam.Holder, awaits ipam.Awaited, refusal error) Parked {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.places[holder]
	if p == nil {
		return Parked{Retry: lastRetry}
	}
	q.stepOut(p)
	q.stopAwaiting(p)
	p.parked, p.awaits, p.refusal, p.probation = true, awaits, refusal, false
	p.failures++
	q.await(p)
	retry := min(firstRetry<<min(p.failures-1, 6), lastRetry)
	return Parked{Pools: p.wants.Pools, Retry: retry}
}

// Stumble notes an attempt that failed for a reason which passes by itself, and reports
// whether that has happened so often in a row that the waiter is to be parked.
func (q *lines) Stumble(holder ipam.Holder) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.places[holder]
	if p == nil {
		return false
	}
	p.failures++
	return p.failures > tolerated
}

// Keep has a waiter that failed for want of room keep its place, or have it again. It
// returns the refusal with which it was parked: whether that holds still is known when
// there is room again.
func (q *lines) Keep(holder ipam.Holder) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.places[holder]
	if p == nil {
		return nil
	}
	if p.refusal == nil {
		p.failures = 0
	}
	p.probation = p.refusal != nil
	q.unpark(p)
	return p.refusal
}

// resume has a waiter be as one that was never parked.
func (q *lines) resume(p *place) bool {
	p.failures, p.refusal, p.probation = 0, nil, false
	return q.unpark(p)
}

// unpark puts a waiter back in line, and reports whether it was parked.
func (q *lines) unpark(p *place) bool {
	if !p.parked {
		return false
	}
	q.stopAwaiting(p)
	p.parked, p.awaits = false, ipam.Awaited{}
	q.lineUp(p)
	return true
}

// await enters a place that is parked under what it awaits, and stopAwaiting takes it out.
func (q *lines) await(p *place) {
	if !p.parked || p.awaits == (ipam.Awaited{}) {
		return
	}
	if q.awaiting[p.awaits] == nil {
		q.awaiting[p.awaits] = map[*place]bool{}
	}
	q.awaiting[p.awaits][p] = true
}

func (q *lines) stopAwaiting(p *place) {
	if delete(q.awaiting[p.awaits], p); len(q.awaiting[p.awaits]) == 0 {
		delete(q.awaiting, p.awaits)
	}
}

// Resume puts those back in line that are parked until just that has changed, and returns
// the pools for which they wait: the turn of one of them may have come there. Each is
// passed over as long as it may not have a block. It costs O(1) where there are none.
func (q *lines) Resume(changed ipam.Awaited) []ipam.PoolKey {
	q.mu.Lock()
	defer q.mu.Unlock()
	pools := map[ipam.PoolKey]bool{}
	for p := range maps.Clone(q.awaiting[changed]) {
		q.resume(p)
		for _, pool := range p.wants.Pools {
			pools[pool] = true
		}
	}
	return slices.Collect(maps.Keys(pools))
}

// Waited are those of the pools that somebody is in line for.
func (q *lines) Waited(pools []ipam.PoolKey) []ipam.PoolKey {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(pools), func(pool ipam.PoolKey) bool { return q.byPool[pool] == nil })
}
