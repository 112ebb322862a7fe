package allocator

import (
	"context"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// overtakes says whether serving the order from the pool would overtake a claim
// that waits ahead of it, for the same pool, and fits. Who asks for what the pool does
// not have overtakes nobody, and is to hear so, and who has it; of a full pool that is
// known without looking at those who wait. Nor is anybody overtaken where there is
// plenty: otherwise one claim that had to wait for a moment, because nobody led, would
// have all wait that come after it.
func (a *Allocator) overtakes(order Order, pool ipam.Pool) bool {
	if !a.ledger.HasRoom(pool.Key, order.Terms.Length, order.Terms.Block) {
		return false
	}
	_, found := a.queue.First(pool, func(w Waiting) bool {
		if w.Holder == order.Holder || !order.Waiting.isZero() && !w.ahead(order.Waiting, pool) {
			return false
		}
		return a.fitsNow(pool, w)
	})
	return found && !a.hasPlenty(pool, order.Terms.Length)
}

// atOnce is how many claims may ask one pool for a block at the same time, each
// seeing that there is plenty.
const atOnce = 256

// hasPlenty says whether the pool has room for one more block of the length, for all
// who wait for it, and for atOnce others, whichever sizes they take: a free block
// that holds as many of the largest that is asked for, and some more. Where somebody
// waits for one block that is free, and for no other, it is not there for others.
func (a *Allocator) hasPlenty(pool ipam.Pool, length int) bool {
	room := func(blocks, length int) bool {
		within := length - bits.Len(uint(blocks))
		return within >= 0 && a.ledger.HasRoom(pool.Key, within, netip.Prefix{})
	}
	if !room(atOnce, length) {
		return false
	}
	blocks, largest := atOnce, length
	lengths := map[shape]int{}
	for w := range a.queue.All(pool) {
		if block := w.Request.Block; block.IsValid() {
			if a.ledger.HasRoom(pool.Key, block.Bits(), block) {
				return false
			}
			continue
		}
		if asked := a.lengthOf(w.Request, lengths); asked != ipam.NoLength {
			blocks, largest = blocks+1, min(largest, asked)
		}
	}
	return room(blocks, largest)
}

// shape is what the length of a block follows from, where the request does not pick
// pools by their labels. Of many that wait, most are alike.
type shape struct {
	target          target
	namespace       string
	child           ipam.PoolKey
	family          ipam.Family
	length          int
	granted, single bool
}

// lengthOf is the length that a request comes to, ipam.NoLength where it cannot be
// served. Known are those that were asked for already.
func (a *Allocator) lengthOf(req ipam.Request, known map[shape]int) int {
	s := shape{targetOf(req), req.Namespace(), req.Child, req.Family, req.Length, req.Granted, req.Single}
	if length, ok := known[s]; ok && req.Selects == nil {
		return length
	}
	length := ipam.NoLength
	if resolution, err := a.Resolve(req); err == nil {
		length = resolution.Terms.Length
	}
	known[s] = length
	return length
}

// OnTurn has serve called, from the goroutine of Wake, for each holder of the
// kind whose turn it is. To be called before Wake.
func (a *Allocator) OnTurn(kind string, serve func(ipam.Holder)) {
	a.turnsLock.Lock()
	defer a.turnsLock.Unlock()
	a.turns[kind] = serve
}

// Wake looks at each pool in which something was released or changed, and has
// the claim served that comes first of those that it can serve, or all of them where
// there is plenty, until ctx is done.
// Those whose very block somebody else has got are looked at too, so that they say
// so. For the leader.
func (a *Allocator) Wake(ctx context.Context) error {
	stop := context.AfterFunc(ctx, a.wake.ShutDown)
	defer stop()
	for {
		key, done := a.wake.Get()
		if done {
			return nil
		}
		if pool, ok := a.catalogue.Pool(key); ok {
			for _, holder := range a.due(pool) {
				a.serve(holder)
			}
			free := func(block netip.Prefix) bool { return a.ledger.HasRoom(key, block.Bits(), block) }
			for _, holder := range a.queue.Outdone(pool, free) {
				a.serve(holder)
			}
		}
		a.wake.Done(key)
	}
}

// due are those whose turn it is in a pool.
func (a *Allocator) due(pool ipam.Pool) []ipam.Holder {
	next, ok := a.Next(pool)
	if !ok {
		return nil
	}
	resolution, err := a.Resolve(next.Request)
	if err != nil || !a.hasPlenty(pool, resolution.Terms.Length) {
		return []ipam.Holder{next.Holder}
	}
	var all []ipam.Holder
	for w := range a.queue.All(pool) {
		all = append(all, w.Holder)
	}
	return all
}

func (a *Allocator) serve(holder ipam.Holder) {
	a.turnsLock.Lock()
	defer a.turnsLock.Unlock()
	if serve := a.turns[holder.Kind]; serve != nil {
		serve(holder)
	}
}

// Wait puts a holder in line. Should its turn have come while it was not there,
// it is served all the same.
func (a *Allocator) Wait(w Waiting) {
	if a.queue.Join(w) {
		a.wakePoolsFor(w.Request)
	}
}

// Leave takes a holder out of the line, if it is there: it has what it waited
// for, or does not want it any more.
func (a *Allocator) Leave(holder ipam.Holder) { a.leave(holder) }

// leave takes a holder out of the queue, and has those behind it looked at.
func (a *Allocator) leave(holder ipam.Holder) {
	left, ok := a.queue.Leave(holder)
	if ok {
		a.wakePoolsFor(left.Request)
	}
}

func (a *Allocator) wakePoolsFor(req ipam.Request) {
	for _, pool := range a.poolsFor(req) {
		a.wake.Add(pool.Key)
	}
}

// poolsFor are the pools that may serve a request.
func (a *Allocator) poolsFor(req ipam.Request) []ipam.Pool {
	req, err := a.onBehalf(req)
	if err != nil {
		return nil
	}
	class, err := a.classOf(req)
	if err != nil {
		return nil
	}
	pools, _ := a.poolsOf(req, class)
	return pools
}

// Next is the claim that has waited longest of those that the pool can serve
// now; false where there is none.
func (a *Allocator) Next(pool ipam.Pool) (Waiting, bool) {
	if a.PoolReady(pool) != nil || !a.ledger.HasRoom(pool.Key, ipam.NoLength, netip.Prefix{}) {
		return Waiting{}, false
	}
	return a.queue.First(pool, func(w Waiting) bool { return a.fitsNow(pool, w) })
}

// fitsNow says whether the pool can serve a claim that waits: it has room, and
// class and pool allow what the claim asks for.
func (a *Allocator) fitsNow(pool ipam.Pool, w Waiting) bool {
	if !a.ledger.HasRoom(pool.Key, w.Request.Length, w.Request.Block) {
		return false
	}
	resolution, err := a.Resolve(w.Request)
	if err != nil || !a.ledger.HasRoom(pool.Key, resolution.Terms.Length, w.Request.Block) {
		return false
	}
	return slices.ContainsFunc(resolution.Pools, func(p ipam.Pool) bool { return p.Key == pool.Key })
}
