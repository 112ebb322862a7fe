package queue

import (
	"context"
	"net/netip"

	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// turnHandler holds the function that serves the holders of a kind.
type turnHandler struct{ serve func(ipam.Holder) }

// OnTurn registers serve for a kind. serve is called, from the goroutine of Run among others, for
// each holder of the kind whose turn it is, now or later, until stop is called or another function
// is registered for the kind. serve must return at once.
func (q *Queue) OnTurn(kind string, serve func(ipam.Holder)) (stop func()) {
	serves := &turnHandler{serve}
	q.turnsLock.Lock()
	q.turns[kind] = serves
	q.turnsLock.Unlock()
	q.wakePools(q.lines.Pools())
	return func() {
		q.turnsLock.Lock()
		defer q.turnsLock.Unlock()
		if q.turns[kind] == serves {
			delete(q.turns, kind)
		}
	}
}

// Turns returns a source that enqueues the holders of a kind when it is their turn.
func (q *Queue) Turns(kind string) source.Source {
	return kubeutil.Subscription(func(_ context.Context, requests kubeutil.Queue) (stop func()) {
		return q.OnTurn(kind, func(h ipam.Holder) { requests.Add(kubeutil.RequestFor(h.Namespace, h.Name)) })
	})
}

// EnqueueWaiting enqueues the holders of a kind that wait for a change of the catalog such as c.
func (q *Queue) EnqueueWaiting(requests kubeutil.Queue, kind string, c inventory.Change) {
	for _, holder := range q.WaitingFor(c) {
		if holder.Kind == kind {
			requests.Add(kubeutil.RequestFor(holder.Namespace, holder.Name))
		}
	}
}

// Run looks at each pool in which something was released or changed, until ctx is done. It serves
// the first claim of those that it can serve, or all of them if there is plenty. It also serves the
// claims whose requested block another holder has got, so that their status states that. On a
// replica that does not lead no holder is served, and Run only keeps the pools that something was
// released in from piling up.
func (q *Queue) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, q.wake.ShutDown)
	defer stop()
	for {
		key, done := q.wake.Get()
		if done {
			return
		}
		for _, holder := range q.due(key) {
			q.serve(holder)
		}
		q.wake.Done(key)
	}
}

// due returns the holders to serve because of a pool.
func (q *Queue) due(key ipam.PoolKey) []ipam.Holder {
	pool, ok := q.catalogue.Pool(key)
	if !ok || q.Synced() != nil {
		return nil
	}
	ready := q.catalogue.PoolReady(pool) == nil
	var due []ipam.Holder
	q.ledger.Inspect(key, func(room ledger.Room) {
		if ready {
			due = q.lines.Due(pool, room)
		}
		due = append(due, q.lines.Conflicted(key, room)...)
	})
	return due
}

func (q *Queue) serve(holder ipam.Holder) {
	q.turnsLock.Lock()
	defer q.turnsLock.Unlock()
	if serves := q.turns[holder.Kind]; serves != nil {
		serves.serve(holder)
	}
}

func (q *Queue) wakePools(pools []ipam.PoolKey) {
	for _, pool := range pools {
		q.wake.Add(pool)
	}
}

// MayTake reports whether a holder can take the free block from the pool: no waiter for which there
// is room comes before it, or there is plenty for all. If there is plenty, but a waiter asks for a
// block that overlaps this one, MayTake returns that waiter's block: the holder can take another.
// The holder's place is zero for a newcomer, which is behind all waiters.
//
// It costs O(lengths that are waited for), and if there is plenty as much again for each waiter
// that asks for a block that overlaps this one.
func (q *lines) MayTake(pool ipam.Pool, room Room, holder ipam.Holder, place Waiter, block netip.Prefix) (may bool, wanted netip.Prefix) {
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.byPool[pool.Key]
	if line == nil {
		return true, netip.Prefix{}
	}
	if p := q.places[holder]; p != nil && p.beyond {
		place = Waiter{}
	}
	first := line.first(pool, room, holder)
	if first == nil || !place.IsZero() && !first.ahead(place, pool) {
		return true, netip.Prefix{}
	}
	if !line.hasPlenty(room, block.Bits()) {
		return false, netip.Prefix{}
	}
	wanted = line.wanted(room, block, holder)
	return !wanted.IsValid(), wanted
}

// Due returns the holders whose turn it is in a pool: the first for which there is room or, if
// there is plenty, all for which there is room.
func (q *lines) Due(pool ipam.Pool, room Room) []ipam.Holder {
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.byPool[pool.Key]
	if line == nil {
		return nil
	}
	first := line.first(pool, room, ipam.Holder{})
	switch {
	case first == nil:
		return nil
	case line.firstFree(room, ipam.Holder{}) == nil && line.hasPlenty(room, first.wants.Length):
		return line.fitting(room)
	}
	return []ipam.Holder{first.Holder}
}

// Conflicted returns the holders that wait for one block of the pool, and no other, and that do not
// know yet that another holder has it. Each is reported once, and again when it asks for another
// block.
func (q *lines) Conflicted(pool ipam.PoolKey, room Room) []ipam.Holder {
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.byPool[pool]
	if line == nil || len(line.unaware) == 0 {
		return nil
	}
	conflicted := line.conflicted(room)
	for _, p := range conflicted {
		p.knowsConflict = true
		for _, key := range p.wants.Pools {
			delete(q.byPool[key].unaware, p)
		}
	}
	return holders(conflicted)
}

// Freed notes that a part of a block of the pool became free. It costs O(address bits), and as much
// as there are waiters that ask for a block that overlaps it.
func (q *lines) Freed(pool ipam.PoolKey, block netip.Prefix) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if line := q.byPool[pool]; line != nil {
		line.freed(block)
	}
}

// bytesOfWaiter is the largest memory size of a waiter that counts as one. A larger waiter counts
// as several, so that the bound of a namespace bounds its memory, too.
const bytesOfWaiter = 4 << 10

// weight returns the number of waiters that a request counts as.
func weight(r ipam.Request) int { return 1 + r.SelectorBytes/bytesOfWaiter }

// tenant holds the waiters of a namespace.
type tenant struct {
	places map[*place]bool
	// beyond contains the waiters that are beyond the bound, in order.
	beyond []*place
	// weight is the weight of the other waiters.
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

// isFull reports whether a new waiter is beyond the bound of its namespace. Cluster-scoped pools
// belong to no tenant, and are not bounded.
func (q *lines) isFull(p *place) bool {
	t := q.namespaces[p.Holder.Namespace]
	return p.Holder.Namespace != "" && t != nil && q.exceeds(t, p)
}

// exceeds reports whether a waiter of a namespace is too much beside the waiters that are in line.
// One waiter is never too much.
func (q *lines) exceeds(t *tenant, p *place) bool {
	return q.limit > 0 && t.weight > 0 && t.weight+weight(p.Request) > q.limit
}

// moveUp puts the oldest waiters beyond the bound in line instead of a waiter that left, and
// returns their holders.
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

// Limit returns the largest number of waiters that a namespace can have; 0 means any number.
func (q *lines) Limit() int { return q.limit }

// IsFull reports whether a namespace has too many waiters for one more with the request.
func (q *lines) IsFull(namespace string, request ipam.Request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.isFull(&place{Waiter: Waiter{Holder: ipam.Holder{Namespace: namespace}, Request: request}})
}

// IsBeyond reports whether a waiter is in no pool queue because its namespace has as many waiters
// as it can have.
func (q *lines) IsBeyond(holder ipam.Holder) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.places[holder]
	return p != nil && p.beyond
}
