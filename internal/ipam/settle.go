package ipam

import (
	"cmp"
	"time"
)

// stickyFor is how long a block waits for the next claim of its key, where
// neither class nor pool says.
const stickyFor = time.Hour

// Keeping is for how long a block is kept after its holder is gone.
type Keeping struct {
	// Retention of a retained block; zero: until a person ends it.
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

// Settlement is what becomes of a record without holder.
type Settlement struct {
	// State is the one to write, or empty.
	State State
	// ReleaseAfter goes with State; zero: never by itself.
	ReleaseAfter time.Time
	// Release says that the block is free.
	Release bool
	// Again is when to look again; zero: when the record changes.
	Again time.Time
}

// Settle decides what becomes of a record whose holder is gone.
//
//	Bound ── Delete ──┬─ no delay ────────────────┬─▶ released
//	  │               └─ delay ─▶ Cooling ─ due ──┤
//	  └──── Retain ─▶ Retained ─ due ─ as Delete ─┘
//
// A block with a sticky key is retained for a time even with Delete.
//
// A retained record that a person deletes is released at once. In a namespace that
// goes away nothing is retained: no claim can come back there.
func Settle(r Record, k Keeping, now time.Time) Settlement {
	switch {
	case r.State == Bound && r.isKept():
		return Settlement{State: Retained, ReleaseAfter: r.keptUntil(k, now)}
	case r.State == Retained && r.Terminating:
		return Settlement{Release: true}
	case r.State == Retained && r.ReleaseAfter.IsZero():
		return Settlement{}
	case r.State != Bound && now.Before(r.ReleaseAfter):
		return Settlement{Again: r.ReleaseAfter}
	case r.State != Cooling && k.ReuseDelay > 0 && r.Purpose == ForClaim:
		return Settlement{State: Cooling, ReleaseAfter: now.Add(k.ReuseDelay)}
	default:
		return Settlement{Release: true}
	}
}

// isKept says whether the block is kept for another claim once its holder is gone.
func (r Record) isKept() bool {
	return r.Purpose == ForClaim && !r.Terminating && (r.Reclaim == Retain || r.Sticky != "")
}

// keptUntil is when a kept block is free; zero: when a person says so.
func (r Record) keptUntil(k Keeping, now time.Time) time.Time {
	if r.Reclaim != Retain { // for the next of its sticky key
		return now.Add(cmp.Or(k.Retention, stickyFor))
	}
	return later(now, k.Retention)
}

func later(now time.Time, by time.Duration) time.Time {
	if by == 0 {
		return time.Time{}
	}
	return now.Add(by)
}
