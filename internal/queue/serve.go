package queue

import (
	"context"

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
