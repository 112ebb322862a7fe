package queue

import "github.com/cadastre-dev/cadastre/internal/ipam"

// bytesOfWaiter is how much memory a waiter takes at most that counts as one. A larger one counts as
// several, so that the bound of a namespace bounds its memory, too.
const bytesOfWaiter = 4 << 10

// weight is how many waiters a request counts as.
func weight(r ipam.Request) int { return 1 + r.SelectorBytes/bytesOfWaiter }

// tenant is the waiters of a namespace.
type tenant struct {
	places map[*place]bool
	// beyond are those of them that are beyond the bound, in order.
	beyond []*place
	// weight is that of the others.
	weight int
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
	} else {
		t.weight += weight(p.Request)
	}
}

func (q *lines) dismiss(p *place) {
	t := q.namespaces[p.Holder.Namespace]
	if p.beyond {
		t.beyond = remove(t.beyond, p)
	} else {
		t.weight -= weight(p.Request)
	}
	if delete(t.places, p); len(t.places) == 0 {
		delete(q.namespaces, p.Holder.Namespace)
	}
}

// isFull reports whether a waiter that is new is beyond the bound of its namespace.
// Cluster-scoped pools are no tenant's, and not bounded.
func (q *lines) isFull(p *place) bool {
	t := q.namespaces[p.Holder.Namespace]
	return p.Holder.Namespace != "" && t != nil && q.exceeds(t, p)
}

// exceeds reports whether a waiter of a namespace is too much beside those that are in line. One is
// never too much.
func (q *lines) exceeds(t *tenant, p *place) bool {
	return q.limit > 0 && t.weight > 0 && t.weight+weight(p.Request) > q.limit
}

// moveUp has the oldest that were beyond the bound take the place of one that left.
func (q *lines) moveUp(left *place) []ipam.Holder {
	t := q.namespaces[left.Holder.Namespace]
	if left.beyond || t == nil {
		return nil
	}
	var moved []ipam.Holder
	for len(t.beyond) > 0 && !q.exceeds(t, t.beyond[0]) {
		p := t.beyond[0]
		t.beyond = t.beyond[1:]
		t.weight += weight(p.Request)
		p.beyond = false
		q.lineUp(p)
		moved = append(moved, p.Holder)
	}
	return moved
}

// Limit is how many waiters a namespace may have; 0: any number.
func (q *lines) Limit() int { return q.limit }

// IsFull reports whether a namespace has too many waiters for one more with the request.
func (q *lines) IsFull(namespace string, request ipam.Request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.isFull(&place{Waiter: Waiter{Holder: ipam.Holder{Namespace: namespace}, Request: request}})
}

// IsBeyond reports whether a waiter is in no line because its namespace has as many
// waiters as it may.
func (q *lines) IsBeyond(holder ipam.Holder) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.places[holder]
	return p != nil && p.beyond
}
