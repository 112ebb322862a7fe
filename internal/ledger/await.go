package ledger

import (
	"context"
	"time"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Frees counts the blocks that the pools have freed so far, for AwaitRelease.
func (l *Ledger) Frees(pools []ipam.PoolKey) int {
	frees, _ := l.released(pools, ipam.Holder{})
	return frees
}

// AwaitRelease waits until the pools have freed more blocks than before, until
// ctx is done, where a release is known to be on its way there: a record whose
// claim is terminating or gone, or one of the very holder that asks. Where none
// is, it waits only for as long as patience lasts for the sign of one. It says
// whether a block was freed.
func (l *Ledger) AwaitRelease(ctx context.Context, pools []ipam.PoolKey, asking ipam.Holder, before int, patience time.Duration) bool {
	wake := make(chan struct{}, 1)
	l.subscribe(pools, wake)
	defer l.unsubscribe(pools, wake)
	impatient := l.options.Clock.NewTimer(patience)
	defer impatient.Stop()
	for expected := false; ; {
		frees, leaving := l.released(pools, asking)
		if frees > before {
			return true
		}
		expected = expected || leaving
		if !expected && patience <= 0 {
			return false
		}
		select {
		case <-wake:
		case <-impatient.C():
			if !expected {
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
}

// Await waits until the condition holds, looking again whenever something
// happens in the pools, or until ctx is done. The condition may call the Ledger.
func (l *Ledger) Await(ctx context.Context, pools []ipam.PoolKey, condition func() bool) {
	wake := make(chan struct{}, 1)
	l.subscribe(pools, wake)
	defer l.unsubscribe(pools, wake)
	for !condition() {
		select {
		case <-wake:
		case <-ctx.Done():
			return
		}
	}
}

// IsLeaving reports whether the record is about to be released or retained.
func (l *Ledger) IsLeaving(record ipam.Name) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byName.one(record)
	return e != nil && e.leaving
}

// subscribe has wake receive what happens in the pools.
func (l *Ledger) subscribe(pools []ipam.PoolKey, wake chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range pools {
		if b := l.books[key]; b != nil {
			b.awaited[wake] = struct{}{}
		}
	}
}

func (l *Ledger) unsubscribe(pools []ipam.PoolKey, wake chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range pools {
		if b := l.books[key]; b != nil {
			delete(b.awaited, wake)
			l.prune(b)
		}
	}
}

// released counts the blocks that the pools have freed so far, and reports whether
// one of them is about to free another.
func (l *Ledger) released(pools []ipam.PoolKey, asking ipam.Holder) (frees int, leaving bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range pools {
		if b := l.books[key]; b == nil {
			frees += l.pruned
		} else {
			frees += b.frees
			leaving = leaving || b.leaving > 0 || l.holdsIn(asking, key)
		}
	}
	return frees, leaving
}

// holdsIn reports whether the holder, which is not there yet, has a record in the
// pool from an earlier life.
func (l *Ledger) holdsIn(holder ipam.Holder, pool ipam.PoolKey) bool {
	for e := range l.byHolder.of(holder) {
		if e.pool() == pool && (e.state() == ipam.StateBound || e.state() == ipam.StateReleasing) {
			return true
		}
	}
	return false
}

// AwaitStored gives the view Options.Silence to show a record of the name, which is known
// to be stored in one of the pools. Where it does not, the watch begins anew.
func (l *Ledger) AwaitStored(ctx context.Context, name ipam.Name, pools []ipam.PoolKey) {
	known := l.options.Clock.Now()
	limited, cancel := context.WithTimeout(ctx, l.options.Silence)
	defer cancel()
	shown := func() bool { _, ok := l.Record(name); return ok }
	l.Await(limited, pools, shown)
	if ctx.Err() == nil && !shown() {
		l.relistSince(known)
	}
}
