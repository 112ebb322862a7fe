package queue

import (
	"time"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Standing is how a waiter stands in the queue.
type Standing int

const (
	// InLine waiters are served when there is room, and it is their turn.
	InLine Standing = iota
	// Missing is what those wait for that wait for no pool: what they name is not there.
	Missing
	// PassedOver waiters cannot be served for another reason than want of room.
	PassedOver
	// BeyondLimit are those beyond the bound of their namespace, and in no line.
	BeyondLimit
)

// Line is the waiters that stand alike.
type Line struct {
	// Pool is that of those that are in line; zero for others.
	Pool     ipam.PoolKey
	Standing Standing
}

// Count is how many wait in a line, and since when the oldest.
type Count struct {
	Waiters int
	Oldest  time.Time
}

// Counts are those of all lines that are not empty. A waiter that waits for several pools is
// in the line of each. It costs O(waiters), with little for each, whatever number of pools
// it waits for.
func (q *Queue) Counts() map[Line]Count { return q.lines.Counts() }

// Counts is that of Queue.
func (q *lines) Counts() map[Line]Count {
	q.mu.Lock()
	defer q.mu.Unlock()
	counts := map[Line]Count{}
	for pool, l := range q.byPool {
		counts[Line{Pool: pool}] = l.count()
	}
	var others [BeyondLimit + 1]Count
	for _, p := range q.places {
		if standing := p.standing(); standing != InLine {
			others[standing].add(1, p.Since)
		}
	}
	for standing, count := range others {
		if count.Waiters > 0 {
			counts[Line{Standing: Standing(standing)}] = count
		}
	}
	return counts
}

func (p *place) standing() Standing {
	switch {
	case p.beyond:
		return BeyondLimit
	case p.parked:
		return PassedOver
	case len(p.wants.Pools) == 0:
		return Missing
	}
	return InLine
}

// count counts those of the line. Each group and each list of one block is in order.
func (l *line) count() Count {
	count := Count{}
	for _, r := range l.byLength {
		for _, g := range r.groups {
			count.add(len(g.places), g.places[0].Since)
		}
	}
	for _, same := range l.exact.All() {
		count.add(len(same), same[0].Since)
	}
	return count
}

// add adds so many waiters, of which the oldest has waited since then.
func (c *Count) add(waiters int, oldest time.Time) {
	if c.Waiters == 0 || oldest.Before(c.Oldest) {
		c.Oldest = oldest
	}
	c.Waiters += waiters
}
