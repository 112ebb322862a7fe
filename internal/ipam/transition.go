package ipam

import (
	"cmp"
	"time"
)

// How long a block is kept where neither class nor pool says: a retained one, and one
// that waits for the next claim of its sticky key.
const (
	retainedFor = 720 * time.Hour
	stickyFor   = time.Hour
)

// Keeping is for how long a block is kept after its holder is gone.
type Keeping struct {
	// Retention of a retained block; zero: the default.
	Retention time.Duration
	// ReuseDelay of a released block.
	ReuseDelay time.Duration
}

// KeepingOf is what class and pool say, either of which may be nil: the class
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

// Transition is what becomes of a record without a holder.
type Transition struct {
	// State is the one to write, or empty.
	State State
	// ReleaseAfter goes with State; zero: never by itself.
	ReleaseAfter time.Time
	// Release says that the block is free.
	Release bool
	// Again is when to look again; zero: when the record changes.
	Again time.Time
}

// NextState decides what becomes of a record whose holder is gone.
//
//	Bound ── Delete ──┬─ no delay ────────────────┬─▶ released
//	  │               └─ delay ─▶ Cooling ─ due ──┤
//	  └──── Retain ─▶ Retained ─ due ─ as Delete ─┘
//
// A block with a sticky key is retained for a time even with Delete. One that was
// retained, and was taken over for a claim that is not there, is retained again until
// it was due.
//
// A retained record that a person deletes is due at once, and cools down where there
// is a delay: its finalizer keeps it until then. The deletion of a record that cools
// down changes nothing. In a namespace that goes away nothing is retained: no claim
// can come back there.
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

// isNotDue reports whether the time of a retained or cooling record is not over. A
// person who deletes a retained one ends its time.
func (r Record) isNotDue(now time.Time) bool {
	ended := r.State == StateBound || r.State == StateRetained && r.Terminating
	return !ended && now.Before(r.ReleaseAfter)
}

// isKept reports whether the block is kept for another claim once its holder is gone.
func (r Record) isKept() bool {
	return !r.Terminating && (r.Reclaim == ReclaimRetain || r.Sticky != "")
}

// keptUntil is when a kept block is free.
func (r Record) keptUntil(k Keeping, now time.Time) time.Time {
	if r.Reclaim != ReclaimRetain { // for the next of its sticky key
		return now.Add(cmp.Or(k.Retention, stickyFor))
	}
	return now.Add(cmp.Or(k.Retention, retainedFor))
}
