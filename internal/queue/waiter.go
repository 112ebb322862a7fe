package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Waiter represents a claim or a child pool that waits for a block, and its position in line: the
// older first, then by name.
type Waiter struct {
	Since time.Time
	// Holder is the claim or the child pool; Request is its request, as far as it is known.
	Holder  ipam.Holder
	Request ipam.Request
	// Reason is the reason that the waiter's own status states.
	Reason WaitReason
}

// WaitReason represents the reason for waiting that a waiter's own status states. From it, replicas
// that do not serve waiters learn which of them are passed over.
type WaitReason int

// The reasons that a status can state.
const (
	// ReasonUnknown means that the status states nothing that decides it.
	ReasonUnknown WaitReason = iota
	// ReasonNoRoom means that there is no room. The waiter is in line.
	ReasonNoRoom
	// ReasonRefused means that the waiter cannot be served for another reason. It is parked.
	ReasonRefused
)

// IsZero reports whether the waiter has no holder.
func (w Waiter) IsZero() bool { return w.Holder == (ipam.Holder{}) }

func (w Waiter) isBefore(other Waiter) bool { return compare(w, other) < 0 }

// isReturning reports whether the waiter asks for one block alone, and did so before the pool existed
// or was first ready, as claims and child pools of a backup do, and holders that are moved into a
// pool that is paused from the start. Such waiters are served first when the pool opens, because no
// other block serves them; waiters that accept any block may wait longer, and take another. A
// waiter that asks later has no such right: it would be a way past the waiters for a full pool.
func (w Waiter) isReturning(pool ipam.Pool) bool {
	return w.Request.Block.IsValid() && (pool.OpenSince.IsZero() || !w.Since.After(pool.OpenSince))
}

// isAheadOf reports whether the pool serves the waiter before the other.
func (w Waiter) isAheadOf(other Waiter, pool ipam.Pool) bool {
	if first := w.isReturning(pool); first != other.isReturning(pool) {
		return first
	}
	return w.isBefore(other)
}

func compare(a, b Waiter) int {
	return cmp.Or(
		a.Since.Compare(b.Since),
		cmp.Compare(a.Holder.Namespace, b.Holder.Namespace),
		cmp.Compare(a.Holder.Name, b.Holder.Name),
		cmp.Compare(a.Holder.Kind, b.Holder.Kind),
	)
}

// waiter holds one waiter in the queue.
type waiter struct {
	Waiter
	wants ipam.Wants
	// provisional reports that the waiter has not joined yet.
	provisional bool
	// knowsConflict reports that the waiter's status states that another holder has the one block
	// that it asks for.
	knowsConflict bool
	// parked reports that the waiter cannot be served for another reason than want of room; awaits
	// is the change that it needs, if that is known.
	parked        bool
	awaitedChange ipam.Awaited
	// refusal is the error in the waiter's status from when it was parked until it is served: a
	// lack of room as well is then no news. With probation the waiter is in line again.
	refusal   error
	probation bool
	// failures counts attempts to serve it that failed for such a reason.
	failures int
	// isBeyondLimit reports that the waiter is beyond the bound of its namespace.
	isBeyondLimit bool
}

func compareWaiters(a, b *waiter) int { return compare(a.Waiter, b.Waiter) }

// insert adds a waiter to a sorted list, and remove removes it. They cost O(log n) and a move of
// memory.
func insert(list []*waiter, p *waiter) []*waiter {
	if n := len(list); n == 0 || compareWaiters(list[n-1], p) < 0 {
		return append(list, p)
	}
	at, _ := slices.BinarySearchFunc(list, p, compareWaiters)
	return slices.Insert(list, at, p)
}

func remove(list []*waiter, p *waiter) []*waiter {
	at, found := slices.BinarySearchFunc(list, p, compareWaiters)
	if !found {
		return list
	}
	return slices.Delete(list, at, at+1)
}

// target represents the object that a waiter names: a class, a pool, or pools by their labels. Zero
// means the default class.
type target struct {
	class    string
	pool     ipam.PoolKey
	selector bool
}

func targetOf(r ipam.Request) target {
	if r.Selects != nil {
		return target{selector: true}
	}
	return target{class: r.Class, pool: r.Pool}
}

// sortWaiters returns the waiters of the sets, in order.
func sortWaiters(sets ...map[*waiter]bool) []*waiter {
	var all []*waiter
	for _, set := range sets {
		for p := range set {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, compareWaiters)
	return all
}
