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

func (w Waiter) before(other Waiter) bool { return compare(w, other) < 0 }

// returns reports whether the waiter asks for one block alone, and did so before the pool existed
// or was first ready, as claims and child pools of a backup do, and holders that are moved into a
// pool that is paused from the start. Such waiters are served first when the pool opens, because no
// other block serves them; waiters that accept any block may wait longer, and take another. A
// waiter that asks later has no such right: it would be a way past the waiters for a full pool.
func (w Waiter) returns(pool ipam.Pool) bool {
	return w.Request.Block.IsValid() && (pool.OpenSince.IsZero() || !w.Since.After(pool.OpenSince))
}

// ahead reports whether the pool serves the waiter before the other.
func (w Waiter) ahead(other Waiter, pool ipam.Pool) bool {
	if first := w.returns(pool); first != other.returns(pool) {
		return first
	}
	return w.before(other)
}

func compare(a, b Waiter) int {
	return cmp.Or(
		a.Since.Compare(b.Since),
		cmp.Compare(a.Holder.Namespace, b.Holder.Namespace),
		cmp.Compare(a.Holder.Name, b.Holder.Name),
		cmp.Compare(a.Holder.Kind, b.Holder.Kind),
	)
}

// place holds one waiter in the queue.
type place struct {
	Waiter
	wants ipam.Wants
	// provisional reports that the waiter has not joined yet.
	provisional bool
	// knowsConflict reports that the waiter's status states that another holder has the one block
	// that it asks for.
	knowsConflict bool
	// parked reports that the waiter cannot be served for another reason than want of room; awaits
	// is the change that it needs, if that is known.
	parked bool
	awaits ipam.Awaited
	// refusal is the error in the waiter's status from when it was parked until it is served: a
	// lack of room as well is then no news. With probation the waiter is in line again.
	refusal   error
	probation bool
	// failures counts attempts to serve it that failed for such a reason.
	failures int
	// beyond reports that the waiter is beyond the bound of its namespace.
	beyond bool
}

func comparePlaces(a, b *place) int { return compare(a.Waiter, b.Waiter) }

// insert adds a waiter to a sorted list, and remove removes it. They cost O(log n) and a move of
// memory.
func insert(list []*place, p *place) []*place {
	if n := len(list); n == 0 || comparePlaces(list[n-1], p) < 0 {
		return append(list, p)
	}
	at, _ := slices.BinarySearchFunc(list, p, comparePlaces)
	return slices.Insert(list, at, p)
}

func remove(list []*place, p *place) []*place {
	at, found := slices.BinarySearchFunc(list, p, comparePlaces)
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

// sorted returns the waiters of the sets, in order.
func sorted(sets ...map[*place]bool) []*place {
	var all []*place
	for _, set := range sets {
		for p := range set {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, comparePlaces)
	return all
}
