package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Waiter is a claim or a child pool that waits for a block, and its place in line: the
// older first, then by name.
type Waiter struct {
	Since time.Time
	// Holder is the claim; Request what it asks for, as far as it is known.
	Holder  ipam.Holder
	Request ipam.Request
	// Reason is what the waiter's own status says.
	Reason WaitReason
}

// WaitReason is what a waiter's own status says of why it waits. It is how replicas that
// do not serve waiters learn which of them are passed over.
type WaitReason int

// What a status can say.
const (
	// ReasonUnknown: nothing that decides it.
	ReasonUnknown WaitReason = iota
	// ReasonNoRoom: there is no room. It is in line.
	ReasonNoRoom
	// ReasonRefused: it cannot be served for another reason. It is parked.
	ReasonRefused
)

// IsZero reports whether this is nobody.
func (w Waiter) IsZero() bool { return w.Holder == (ipam.Holder{}) }

func (w Waiter) before(other Waiter) bool { return compare(w, other) < 0 }

// returns reports whether the waiter asks for one block alone, and did so before the
// pool was there or first ready: as claims and child pools of a backup do, and what is
// moved into a pool that is paused from the start. When the pool opens they are served first, for nothing else will do for them; those
// that take any block may wait longer, and take another. Who asks later has no such
// right: it would be a way past those that wait for a full pool.
func (w Waiter) returns(pool ipam.Pool) bool {
	return w.Request.Block.IsValid() && (pool.OpenSince.IsZero() || !w.Since.After(pool.OpenSince))
}

// ahead reports whether the waiter is served by the pool before the other.
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

// place is a waiter in the queue.
type place struct {
	Waiter
	wants ipam.Wants
	// provisional: it has not joined yet.
	provisional bool
	// knowsConflict: its status says that another has the one block that it asks for.
	knowsConflict bool
	// parked: it cannot be served for another reason than want of room; awaits is what
	// has to change, if that is known.
	parked bool
	awaits ipam.Awaited
	// refusal is what its status says since it was parked, until it is served: that there
	// is no room either, by then, is no news. With probation it is in line again.
	refusal   error
	probation bool
	// failures counts attempts to serve it that failed for such a reason.
	failures int
	// beyond the bound of its namespace.
	beyond bool
}

func comparePlaces(a, b *place) int { return compare(a.Waiter, b.Waiter) }

// insert puts a place into a list that is in order, and remove takes it out. They cost
// O(log n) and a move of memory.
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

// target is what a waiter names: a class, a pool, or pools by their labels. Zero: the
// default class.
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

// sorted is a set of places in order.
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
