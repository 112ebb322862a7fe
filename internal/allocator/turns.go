package allocator

import (
	"context"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// turnHandler is who serves the holders of a kind.
type turnHandler struct{ serve func(ipam.Holder) }

// OnTurn has serve called, from the goroutine of Wake among others, for each holder of
// the kind whose turn it is, now or later, until stop is called or somebody else serves
// the kind. serve must return at once.
func (a *Allocator) OnTurn(kind string, serve func(ipam.Holder)) (stop func()) {
	serves := &turnHandler{serve}
	a.turnsLock.Lock()
	a.turns[kind] = serves
	a.turnsLock.Unlock()
	a.wakePools(a.queue.Pools())
	return func() {
		a.turnsLock.Lock()
		defer a.turnsLock.Unlock()
		if a.turns[kind] == serves {
			delete(a.turns, kind)
		}
	}
}

// Wake looks at each pool in which something was released or changed, and has the
// claim served that comes first of those that it can serve, or all of them where
// there is plenty, until ctx is done. Those whose very block another has got are served
// too, so that their status says so. On a replica that does not lead nobody is served,
// and Wake only keeps the pools that something was released in from piling up.
func (a *Allocator) Wake(ctx context.Context) {
	stop := context.AfterFunc(ctx, a.wake.ShutDown)
	defer stop()
	for {
		key, done := a.wake.Get()
		if done {
			return
		}
		for _, holder := range a.due(key) {
			a.serve(holder)
		}
		a.wake.Done(key)
	}
}

// due are those who are to be served because of a pool.
func (a *Allocator) due(key ipam.PoolKey) []ipam.Holder {
	pool, ok := a.catalogue.Pool(key)
	if !ok || a.Synced() != nil {
		return nil
	}
	ready := a.PoolReady(pool) == nil
	var due []ipam.Holder
	a.ledger.Inspect(key, func(room ledger.Room) {
		if ready {
			due = a.queue.Due(pool, room)
		}
		due = append(due, a.queue.Conflicted(key, room)...)
	})
	return due
}

func (a *Allocator) serve(holder ipam.Holder) {
	a.turnsLock.Lock()
	defer a.turnsLock.Unlock()
	if serves := a.turns[holder.Kind]; serves != nil {
		serves.serve(holder)
	}
}
