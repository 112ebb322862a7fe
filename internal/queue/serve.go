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

// OnTurn registers serve for a kind. serve is called, from any goroutine, for each holder of the
// kind whose turn it is, until stop is called or another function is registered. It must return at
// once.
func (q *Queue) OnTurn(kind string, serve func(ipam.Holder)) (stop func()) {
	handler := &turnHandler{serve}
	q.turnsLock.Lock()
	q.turns[kind] = handler
	q.turnsLock.Unlock()
	q.wakePools(q.poolQueues.Pools())
	return func() {
		q.turnsLock.Lock()
		defer q.turnsLock.Unlock()
		if q.turns[kind] == handler {
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
// the first claim that it can serve, or all if there is plenty, and the claims whose requested
// block another holder has got, so that their status states that. On a replica that does not lead,
// it only keeps the pools from piling up.
func (q *Queue) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, q.wake.ShutDown)
	defer stop()
	for {
		key, done := q.wake.Get()
		if done {
			return
		}
		for _, holder := range q.dueHolders(key) {
			q.notifyTurn(holder)
		}
		q.wake.Done(key)
	}
}

// dueHolders returns the holders to serve because of a pool.
func (q *Queue) dueHolders(key ipam.PoolKey) []ipam.Holder {
	pool, ok := q.catalog.Pool(key)
	if !ok || q.Synced() != nil {
		return nil
	}
	ready := q.catalog.PoolReady(pool) == nil
	var dueHolders []ipam.Holder
	q.ledger.Inspect(key, func(room ledger.Room) {
		if ready {
			dueHolders = q.poolQueues.DueHolders(pool, room)
		}
		dueHolders = append(dueHolders, q.poolQueues.ConflictedHolders(key, room)...)
	})
	return dueHolders
}

func (q *Queue) notifyTurn(holder ipam.Holder) {
	q.turnsLock.Lock()
	defer q.turnsLock.Unlock()
	if handler := q.turns[holder.Kind]; handler != nil {
		handler.serve(holder)
	}
}

func (q *Queue) wakePools(pools []ipam.PoolKey) {
	for _, pool := range pools {
		q.wake.Add(pool)
	}
}

// DueHolders returns the holders whose turn it is: the first that can have a block or, if there is
// plenty, all.
func (q *poolQueues) DueHolders(pool ipam.Pool, room Room) []ipam.Holder {
	q.mu.Lock()
	defer q.mu.Unlock()
	pq := q.byPool[pool.Key]
	if pq == nil {
		return nil
	}
	first := pq.nextWaiter(pool, room, ipam.Holder{})
	switch {
	case first == nil:
		return nil
	case pq.firstFree(room, ipam.Holder{}) == nil && pq.hasPlenty(room, first.wants.Length):
		return pq.servableHolders(room)
	}
	return []ipam.Holder{first.Holder}
}

// ConflictedHolders returns the holders whose one block another holder has got, once for each
// block.
func (q *poolQueues) ConflictedHolders(pool ipam.PoolKey, room Room) []ipam.Holder {
	q.mu.Lock()
	defer q.mu.Unlock()
	pq := q.byPool[pool]
	if pq == nil || len(pq.unaware) == 0 {
		return nil
	}
	waiters := pq.conflictedWaiters(room)
	for _, p := range waiters {
		p.knowsConflict = true
		for _, key := range p.wants.Pools {
			delete(q.byPool[key].unaware, p)
		}
	}
	return holders(waiters)
}

// NoteFreed notes that a part of a block became free. It costs O(address bits and waiters for
// blocks that overlap it).
func (q *poolQueues) NoteFreed(pool ipam.PoolKey, block netip.Prefix) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if pq := q.byPool[pool]; pq != nil {
		pq.noteFreed(block)
	}
}

// bytesOfWaiter is the memory of a waiter that counts as one. A larger waiter counts as several, so
// that the bound of a namespace bounds its memory, too.
const bytesOfWaiter = 4 << 10

// weight returns the number of waiters that a request counts as.
func weight(r ipam.Request) int { return 1 + r.SelectorBytes/bytesOfWaiter }

// tenant holds the waiters of a namespace.
type tenant struct {
	waiters map[*waiter]bool
	// beyondLimit contains the waiters that are beyond the bound, in order.
	beyondLimit []*waiter
	// weight is the weight of the other waiters.
	weight int
}

func (q *poolQueues) addToTenant(p *waiter) {
	t := q.namespaces[p.Holder.Namespace]
	if t == nil {
		t = &tenant{waiters: map[*waiter]bool{}}
		q.namespaces[p.Holder.Namespace] = t
	}
	t.waiters[p] = true
	if p.isBeyondLimit {
		t.beyondLimit = insert(t.beyondLimit, p)
	} else {
		t.weight += weight(p.Request)
	}
}

func (q *poolQueues) removeFromTenant(p *waiter) {
	t := q.namespaces[p.Holder.Namespace]
	if p.isBeyondLimit {
		t.beyondLimit = remove(t.beyondLimit, p)
	} else {
		t.weight -= weight(p.Request)
	}
	if delete(t.waiters, p); len(t.waiters) == 0 {
		delete(q.namespaces, p.Holder.Namespace)
	}
}

// isFull reports whether a new waiter is beyond the bound of its namespace. Cluster-scoped pools
// are not bounded.
func (q *poolQueues) isFull(p *waiter) bool {
	t := q.namespaces[p.Holder.Namespace]
	return p.Holder.Namespace != "" && t != nil && q.exceeds(t, p)
}

// exceeds reports whether a waiter is too much beside those in line. One waiter never is.
func (q *poolQueues) exceeds(t *tenant, p *waiter) bool {
	return q.limit > 0 && t.weight > 0 && t.weight+weight(p.Request) > q.limit
}

// moveUp puts the oldest waiters beyond the bound in line instead of one that left.
func (q *poolQueues) moveUp(formerWaiter *waiter) []ipam.Holder {
	t := q.namespaces[formerWaiter.Holder.Namespace]
	if formerWaiter.isBeyondLimit || t == nil {
		return nil
	}
	var holders []ipam.Holder
	for len(t.beyondLimit) > 0 && !q.exceeds(t, t.beyondLimit[0]) {
		p := t.beyondLimit[0]
		t.beyondLimit = t.beyondLimit[1:]
		t.weight += weight(p.Request)
		p.isBeyondLimit = false
		q.enqueue(p)
		holders = append(holders, p.Holder)
	}
	return holders
}

// Limit returns the largest number of waiters that a namespace can have; 0 means any number.
func (q *poolQueues) Limit() int { return q.limit }

// IsFull reports whether a namespace has too many waiters for one more with the request.
func (q *poolQueues) IsFull(namespace string, request ipam.Request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.isFull(&waiter{Waiter: Waiter{Holder: ipam.Holder{Namespace: namespace}, Request: request}})
}

// IsBeyondLimit reports whether a waiter is in no pool queue because of its namespace's bound.
func (q *poolQueues) IsBeyondLimit(holder ipam.Holder) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.waiters[holder]
	return p != nil && p.isBeyondLimit
}
