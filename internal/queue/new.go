package queue

import (
	"net/netip"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// Options are what a Queue is given when it is made.
type Options struct {
	// Ledger is asked for free blocks, and notifies of releases.
	Ledger *ledger.Ledger
	// Catalogue resolves what waiters want, and notifies of changes.
	Catalogue *inventory.Catalogue
	// Limit bounds the claims of a namespace that wait; 0: any number.
	Limit int
	// WatchNamespace is the only namespace whose claims this operator's controllers
	// serve; empty: of all.
	WatchNamespace string
	// Log says of claims that lose their turn.
	Log logr.Logger
}

// New is an empty queue, which follows the catalogue and the ledger from now on.
func New(o Options) *Queue {
	q := &Queue{
		lines: newLines(o.Limit), ledger: o.Ledger, catalogue: o.Catalogue, watched: o.WatchNamespace, log: o.Log,
		wake:  workqueue.NewTyped[ipam.PoolKey](),
		turns: map[string]*turnHandler{},
	}
	q.FedBy(q.ledger.Synced)
	q.catalogue.Follow(inventory.Follower{
		Pool:      q.followPool,
		Namespace: func(name string) { q.resolveAgain(inventory.Change{Namespace: name}) },
	})
	q.catalogue.Listen(q.changed)
	q.ledger.OnFree(func(pool ipam.PoolKey, block netip.Prefix) {
		q.lines.Freed(pool, block)
		q.wake.Add(pool)
	})
	q.ledger.Listen(func(c ledger.Change) {
		switch c.Kind {
		case ledger.Removed:
			q.resumeLimited(c.Record)
		case ledger.Added, ledger.Changed:
			if c.Record.Purpose == ipam.PurposePool { // that pool may be ready now
				q.wake.Add(convert.PoolOf(c.Record.Holder))
			}
		}
	})
	return q
}
