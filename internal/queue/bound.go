package queue

import "github.com/cadastre-dev/cadastre/internal/ipam"

// tenant is the waiters of a namespace.
type tenant struct {
	places map[*place]bool
	// beyond are those of them that are beyond the bound, in order.
	beyond []*place
}

func (q *lines) enroll(p *place) {
	t := q.namespaces[p.Holder.Namespace]
	if t == nil {
		t = &tenant{places: map[*place]bool{}}
		q.namespaces[p.Holder.Namespace] = t
	}
	t.places[p] = true
	if p.beyond {
		t.beyond = insert(t.beyond, p)
	}
}

func (q *lines) dismiss(p *place) {
	t := q.namespaces[p.Holder.Namespace]
	if p.beyond {
		t.beyond = remove(t.beyond, p)
	}
	if delete(t.places, p); len(t.places) == 0 {
		delete(q.namespaces, p.Holder.Namespace)
	}
}

// isFull reports whether a waiter that is new is beyond the bound of its namespace.
// Cluster-scoped pools are no tenant's, and not bounded.
func (q *lines) isFull(p *place) bool {
	t := q.namespaces[p.Holder.Namespace]
	return q.limit > 0 && p.Holder.Namespace != "" && t != nil && len(t.places)-len(t.beyond) >= q.limit
}

// moveUp has the oldest that was beyond the bound take the place of one that left.
func (q *lines) moveUp(left *place) *place {
	t := q.namespaces[left.Holder.Namespace]
	if left.beyond || t == nil || len(t.beyond) == 0 {
		return nil
	}
	p := t.beyond[0]
	t.beyond = t.beyond[1:]
	p.beyond = false
	q.lineUp(p)
	return p
}

// Limit is how many waiters a namespace may have; 0: any number.
func (q *lines) Limit() int { return q.limit }

// IsFull reports whether a namespace has as many waiters as it may.
func (q *lines) IsFull(namespace string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.isFull(&place{Waiter: Waiter{Holder: ipam.Holder{Namespace: namespace}}})
}

// IsBeyond reports whether a waiter is in no line because its namespace has as many
// waiters as it may.
func (q *lines) IsBeyond(holder ipam.Holder) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.places[holder]
	return p != nil && p.beyond
}
