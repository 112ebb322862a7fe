package queue

import (
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// WaitingForClass are those that wait for a class by its name, oldest first.
func (q *lines) WaitingForClass(class string) []ipam.Holder {
	q.mu.Lock()
	defer q.mu.Unlock()
	return holders(sorted(q.targets[target{class: class}]))
}

// WaitingFor are those that wait for what has changed, oldest first: a class, by its
// name or as the default; a pool, by its name or its labels; or what they may use, with
// the project of their namespace.
// Selectors are evaluated outside the lock, which every create takes.
func (q *lines) WaitingFor(c inventory.Change) []ipam.Holder {
	var waiting []ipam.Holder
	for _, w := range q.Concerned(c) {
		if w.Request.Selects == nil || c.Pool == (ipam.PoolKey{}) || w.Request.Selects(c.Labels) {
			waiting = append(waiting, w.Holder)
		}
	}
	return waiting
}

// Concerned are the waiters of which the change may alter what they want: those of
// WaitingFor, and all that select pools by labels, as the pool may have had others.
func (q *lines) Concerned(c inventory.Change) []Waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	return waitersAt(q.concerned(c))
}

// All are all waiters, oldest first.
func (q *lines) All() []Waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	var sets []map[*place]bool
	for _, set := range q.targets {
		sets = append(sets, set)
	}
	return waitersAt(sorted(sets...))
}

func (q *lines) concerned(c inventory.Change) []*place {
	if c.Namespace != "" {
		if t := q.namespaces[c.Namespace]; t != nil {
			return sorted(t.places)
		}
		return nil
	}
	targets := targetsOf(c)
	if c.Pool.Namespace != "" {
		return q.inNamespace(c.Pool.Namespace, targets)
	}
	var sets []map[*place]bool
	for t := range targets {
		sets = append(sets, q.targets[t])
	}
	return sorted(sets...)
}

// targetsOf are what the waiters name that the change may concern.
func targetsOf(c inventory.Change) map[target]bool {
	targets := map[target]bool{{}: true}
	for _, class := range c.Classes {
		targets[target{class: class}] = true
	}
	if c.Pool != (ipam.PoolKey{}) {
		targets[target{pool: c.Pool}], targets[target{selector: true}] = true, true
	}
	return targets
}

// inNamespace are those of a namespace, which alone sees its pools, that name one of the
// targets. What it costs is up to the namespace alone, however many wait in others.
func (q *lines) inNamespace(namespace string, targets map[target]bool) []*place {
	t := q.namespaces[namespace]
	if t == nil {
		return nil
	}
	theirs := map[*place]bool{}
	for p := range t.places {
		if targets[targetOf(p.Request)] {
			theirs[p] = true
		}
	}
	return sorted(theirs)
}

func waitersAt(places []*place) []Waiter {
	all := make([]Waiter, len(places))
	for i, p := range places {
		all[i] = p.Waiter
	}
	return all
}

// Update notes what a waiter wants by now, and reports whether that is something else
// than before. One that was parked is then in line again.
func (q *lines) Update(holder ipam.Holder, wants ipam.Wants) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.places[holder]
	if p == nil || p.wants.Equal(wants) {
		return false
	}
	q.stepOut(p)
	p.wants = wants
	if !q.resume(p) {
		q.lineUp(p)
	}
	return true
}
