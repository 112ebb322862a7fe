package queue

import (
	"context"
	"net/netip"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// turnHandler is who serves the holders of a kind.
type turnHandler struct{ serve func(ipam.Holder) }

// OnTurn has serve called, from the goroutine of Run among others, for each holder of
// the kind whose turn it is, now or later, until stop is called or somebody else serves
// the kind. serve must return at once.
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

// Run looks at each pool in which something was released or changed, and has the
// claim served that comes first of those that it can serve, or all of them where
// there is plenty, until ctx is done. Those whose very block another has got are served
// too, so that their status says so. On a replica that does not lead nobody is served,
// and Run only keeps the pools that something was released in from piling up.
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

// due are the holders to be served because of a pool.
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

// MayTake reports whether a holder may take the free block from the pool: no waiter for
// which there is room comes before it, or there is plenty for all. Where there is plenty,
// but a waiter asks for a block that overlaps this one, it returns that waiter's block: the
// holder may take another. The holder's place is zero for a newcomer, which is behind all
// that wait.
//
// It costs O(lengths that are waited for), and where there is plenty as much again for each
// waiter that asks for a block which overlaps this one.
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

// Due are those whose turn it is in a pool: the first for which there is room, or,
// where there is plenty, all for which there is.
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

// Conflicted are those that wait for one block of the pool, and no other, and do not know
// yet that another holder has it. Each is reported once, and again when it asks for
// another block.
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

// Freed notes that something of a block of the pool became free. It costs O(address
// bits), and as much as there are waiters that ask for a block which overlaps it.
func (q *lines) Freed(pool ipam.PoolKey, block netip.Prefix) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if line := q.byPool[pool]; line != nil {
		line.freed(block)
	}
}

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
