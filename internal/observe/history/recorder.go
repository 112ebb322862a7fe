package history

import (
	"context"
	"net/netip"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

const (
	// A namespace has refusalsBurst refusals written at once, and refusalsPerSecond from then
	// on: who may create claims could otherwise push what matters out of the file.
	refusalsBurst     = 25
	refusalsPerSecond = 0.2
	// waiting is how many entries wait for a sink, and most how many it is handed at once.
	waiting = 8192
	most    = 512
	// messageLength and nameLength bound what a client can write, in bytes.
	messageLength = 1024
	nameLength    = 256
)

// Sink takes entries, such as a file. It is called from one goroutine.
type Sink interface {
	// Write takes entries, in order. The slice is the caller's. After an error none of them
	// counts as written.
	Write(ctx context.Context, entries []Entry) error
	// Close ends the sink, within the context.
	Close(ctx context.Context) error
}

// Lost counts entries that a sink did not take. It is called once for each sink at the
// beginning, with 0.
type Lost func(sink string, entries int)

// Options are what a Recorder is given when it is made.
type Options struct {
	// Sinks by name, which metrics and the log say.
	Sinks map[string]Sink
	// Replica is the name of this replica.
	Replica string
	Clock   clock.PassiveClock
	Lost    Lost
	Log     logr.Logger
}

// Recorder hands entries to sinks. Its methods may be called from any goroutine and never
// wait: where a sink is too slow, entries for it are dropped and counted. A nil Recorder
// records nothing.
type Recorder struct {
	outlets  []*outlet
	replica  string
	clock    clock.PassiveClock
	refusals *kubeutil.Budget
}

// New is a Recorder. What it is given before Run is called waits.
func New(o Options) *Recorder {
	r := &Recorder{
		replica: o.Replica, clock: o.Clock,
		refusals: kubeutil.NewBudget(o.Clock, refusalsBurst, refusalsPerSecond),
	}
	for name, sink := range o.Sinks {
		o.Lost(name, 0)
		r.outlets = append(r.outlets, &outlet{
			name: name, sink: sink, entries: make(chan Entry, waiting),
			lost: o.Lost, log: o.Log.WithValues("sink", name),
		})
	}
	return r
}

// Run hands entries to the sinks until ctx is done, and then those that are left.
func (r *Recorder) Run(ctx context.Context) {
	if r == nil {
		return
	}
	var running sync.WaitGroup
	for _, o := range r.outlets {
		running.Go(func() { o.run(ctx) })
	}
	running.Wait()
}

// Granted says that the block of a record is its holder's.
func (r *Recorder) Granted(record ipam.Record, why Reason) {
	r.recordOf(record, Granted, why)
}

// Retained says that the block of a record, which is in its new state, is kept without its
// holder.
func (r *Recorder) Retained(record ipam.Record, why Reason) {
	r.recordOf(record, Retained, why)
}

// Released says that the block of a record is free.
func (r *Recorder) Released(record ipam.Record, why Reason) {
	r.recordOf(record, Released, why)
}

func (r *Recorder) recordOf(record ipam.Record, action Action, why Reason) {
	if r == nil {
		return
	}
	e := Entry{
		Action: action, Reason: why, Block: record.Block,
		PoolKind: string(record.Pool.Kind), PoolNamespace: record.Pool.Namespace, Pool: record.Pool.Name,
		Class: record.Class, Project: record.Project,
		HolderKind: record.Holder.Kind, HolderNamespace: record.Holder.Namespace, Holder: record.Holder.Name,
		HolderUID: record.HolderUID, RequestedBy: kubeutil.Cut(record.RequestedBy, nameLength),
		Record: record.Name.String(), RecordUID: record.UID,
	}
	if action == Retained {
		e.State, e.Until = string(record.State), record.ReleaseAfter
	}
	r.add(e)
}

// Refusal is a request that a webhook refuses.
type Refusal struct {
	// Kind, Namespace and Name are of the object of the request, and Operation is what was
	// to be done with it.
	Kind, Namespace, Name, Operation string
	// Block is what it asks for; not valid where it asks for none.
	Block netip.Prefix
	// User made the request.
	User string
	// Code, Reason and Message are of the Status that answers it.
	Code            int32
	Reason, Message string
}

// Refused says that a request was refused, unless many of its namespace were.
func (r *Recorder) Refused(refusal Refusal) {
	if r == nil {
		return
	}
	leftOut, ok := r.refusals.Spend(refusal.Namespace)
	if !ok {
		return
	}
	r.add(Entry{
		Action: Refused, Reason: Reason(refusal.Reason), Message: kubeutil.Cut(refusal.Message, messageLength), Block: refusal.Block,
		HolderKind: refusal.Kind, HolderNamespace: refusal.Namespace, Holder: kubeutil.Cut(refusal.Name, nameLength),
		RequestedBy: kubeutil.Cut(refusal.User, nameLength), Operation: refusal.Operation, Code: refusal.Code, LeftOut: leftOut,
	})
}

func (r *Recorder) add(e Entry) {
	e.Time, e.Replica = r.clock.Now().UTC(), r.replica
	for _, o := range r.outlets {
		o.add(e)
	}
}
