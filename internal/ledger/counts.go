package ledger

import (
	"time"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Standing is how a record counts in Counts.
type Standing int

// How records count. An unclaimed one is bound, too, but no live claim or local pool
// names it, as far as this process knows.
const (
	Bound Standing = iota
	Unclaimed
	Retained
	Cooling
	standings
)

// Counts is what the records of a pool come to, by how they count.
type Counts struct {
	Pool     ipam.PoolKey
	Capacity Capacity
	Held     [standings]ipam.Usage
	// Limit is what one project may hold.
	Limit ipam.Limit
}

// Counts are those of all pools with a CIDR. It costs O(pools), and O(1) for each: the counts
// are kept. The largest free block is left out.
func (l *Ledger) Counts() []Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]Counts, 0, len(l.books))
	for key, b := range l.books {
		if key.Kind.IsPool() && b.space != nil {
			all = append(all, Counts{Pool: key, Capacity: b.capacity(), Held: b.held, Limit: b.pool.Limit})
		}
	}
	return all
}

// Account is what a project has of a pool, or else of a class, by records.
type Account struct {
	Project, Class string
	Pool           ipam.PoolKey
	Usage          ipam.Usage
}

// Accounts are those of the pools and the classes that limited picks. It costs O(accounts):
// there is one for each project and pool of which the project has a block, and for each
// project and class.
func (l *Ledger) Accounts(limited func(class string, pool ipam.PoolKey) bool) []Account {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Account
	for a, usage := range l.recorded {
		if limited(a.class, a.pool) {
			all = append(all, Account{Project: a.project, Class: a.class, Pool: a.pool, Usage: usage})
		}
	}
	return all
}

// Lag is since when the longest the view has not shown a record that the API server
// acknowledged; 0 where it has shown all: then there is no hold any more.
func (l *Ledger) Lag() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var longest time.Duration
	for _, h := range l.holds {
		if !h.acknowledged.IsZero() {
			longest = max(longest, l.options.Clock.Since(h.acknowledged))
		}
	}
	return longest
}

// standing is how a record counts.
func (e *entry) standing() Standing {
	switch {
	case e.state() == ipam.StateRetained:
		return Retained
	case e.state() == ipam.StateCooling:
		return Cooling
	case e.isUnclaimed():
		return Unclaimed
	}
	return Bound
}

// count adds an entry to, or subtracts it from, what is counted by its state and by
// whether it is claimed. It is to be called before these change, and after.
func (l *Ledger) count(e *entry, op func(ipam.Usage, ipam.Usage) ipam.Usage) {
	l.countUnclaimed(e, op)
	if e.hold == nil {
		held := &l.books[e.pool()].held[e.standing()]
		*held = op(*held, ipam.UsageOf(e.block))
	}
}
