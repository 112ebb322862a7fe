package ipam

import (
	"cmp"
	"time"
)

// The time for which a block is kept if neither class nor pool states one: a retained block,
// and one that waits for the next claim of its sticky key.
const (
	retainedFor = 720 * time.Hour
	stickyFor   = time.Hour
)

// Keeping holds the times for which a block is kept after its holder is gone.
type Keeping struct {
	// Retention of a retained block; zero: the default.
	Retention time.Duration
	// ReuseDelay of a released block.
	ReuseDelay time.Duration
}

// KeepingOf returns the times that class and pool state; either may be nil. The class counts
// first, then the pool.
func KeepingOf(class *Class, pool *Pool) Keeping {
	var k Keeping
	if pool != nil {
		k.ReuseDelay, k.Retention = pool.ReuseDelay, pool.Retention
	}
	if class != nil {
		k.Retention = cmp.Or(class.Retention, k.Retention)
		if class.ReuseDelay >= 0 {
			k.ReuseDelay = class.ReuseDelay
		}
	}
	return k
}

// Transition holds the next step for a record without a holder.
type Transition struct {
	// State is the state to write, or empty.
	State State
	// ReleaseAfter goes with State; zero: never by itself.
	ReleaseAfter time.Time
	// Release reports whether the block is free.
	Release bool
	// Again is the time to look again; zero: when the record changes.
	Again time.Time
}

// NextState decides the next step for a record whose holder is gone.
//
//	Bound ── Delete ──┬─ no delay ────────────────┬─▶ released
//	  │               └─ delay ─▶ Cooling ─ due ──┤
//	  └──── Retain ─▶ Retained ─ due ─ as Delete ─┘
//
// A block with a sticky key is retained for a time even with Delete. If a claim took over a
// retained block and does not exist, the block is retained again until its old due time.
//
// If a person deletes a retained record, it is due at once, and cools down if there is a delay:
// its finalizer keeps it until then. The deletion of a record that cools down changes nothing.
// In a namespace that is being deleted nothing is retained: no claim can come back there.
func NextState(r Record, k Keeping, now time.Time) Transition {
	switch {
	case r.Purpose == PurposePool:
		return Transition{Release: true}
	case r.WasTakenOver() && !r.Terminating:
		return Transition{State: StateRetained, ReleaseAfter: r.ReleaseAfter}
	case r.State == StateBound && r.isKept():
		return Transition{State: StateRetained, ReleaseAfter: r.keptUntil(k, now)}
	case r.State == StateRetained && !r.Terminating && r.ReleaseAfter.IsZero():
		return Transition{State: StateRetained, ReleaseAfter: r.keptUntil(k, now)}
	case r.isNotDue(now):
		return Transition{Again: r.ReleaseAfter}
	case r.State != StateCooling && k.ReuseDelay > 0:
		return Transition{State: StateCooling, ReleaseAfter: now.Add(k.ReuseDelay)}
	default:
		return Transition{Release: true}
	}
}

// isNotDue reports whether the time of a retained or cooling record is not over. If a person
// deletes a retained record, its time ends.
func (r Record) isNotDue(now time.Time) bool {
	ended := r.State == StateBound || r.State == StateRetained && r.Terminating
	return !ended && now.Before(r.ReleaseAfter)
}

// isKept reports whether the block is kept for another claim once its holder is gone.
func (r Record) isKept() bool {
	return !r.Terminating && (r.Reclaim == ReclaimRetain || r.Sticky != "")
}

// keptUntil returns the time when a kept block is free.
func (r Record) keptUntil(k Keeping, now time.Time) time.Time {
	if r.Reclaim != ReclaimRetain { // for the next claim of its sticky key
		return now.Add(cmp.Or(k.Retention, stickyFor))
	}
	return now.Add(cmp.Or(k.Retention, retainedFor))
}
