// Package replica builds the parts of one replica of the operator for tests.
package replica

import (
	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// Options holds the settings of a Replica that tests vary.
type Options struct {
	// Ledger is fed by the test. Nil: one that is never fed.
	Ledger *ledger.Ledger
	Client client.Client
	// Namespace is the operator's.
	Namespace                    string
	UnclaimedLimit, WaitingLimit int
	Sinks                        map[string]history.Sink
	Clock                        clock.PassiveClock
}

// Replica holds the parts of one replica.
type Replica struct {
	Ledger    *ledger.Ledger
	Catalog   *inventory.Catalog
	Queue     *queue.Queue
	Allocator *allocator.Allocator
	Metrics   *metrics.Instruments
	History   *history.Recorder
}

// New returns the parts of a replica, built as the operator builds them.
func New(o Options) Replica {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Ledger == nil {
		o.Ledger = ledger.New(ledger.Options{})
	}
	r := Replica{Ledger: o.Ledger, Metrics: metrics.New(o.Clock)}
	r.History = history.New(history.Options{Sinks: o.Sinks, Clock: o.Clock, Lost: r.Metrics.HistoryLost, Log: logr.Discard()})
	catalog, waiting := inventory.Options{Namespace: o.Namespace, Clock: o.Clock}, queue.Options{Limit: o.WaitingLimit}
	r.Allocator = allocator.New(o.Ledger, catalog, waiting, allocator.Options{
		Client: o.Client, UnclaimedLimit: o.UnclaimedLimit, Metrics: r.Metrics, History: r.History, Log: logr.Discard(),
	})
	r.Catalog, r.Queue = r.Allocator.Catalog, r.Allocator.Queue
	return r
}
