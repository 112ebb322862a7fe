package history

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

const (
	// refusalsBurst bounds the refusals of a namespace at once, and refusalsPerSecond those after
	// that. Otherwise a user who can create claims could push more important entries out of the
	// file.
	refusalsBurst     = 25
	refusalsPerSecond = 0.2
	// waiting is the number of entries that can wait for a sink, and most is the number that a
	// sink gets at once.
	waiting = 8192
	most    = 512
	// messageLength and nameLength bound the texts that a client can write, in bytes.
	messageLength = 1024
	nameLength    = 256
)

// Sink represents a destination of entries, such as a file. It is called from one goroutine.
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

// Options holds the settings of a Recorder.
type Options struct {
	// Sinks holds the sinks by name, as metrics and the log name them.
	Sinks map[string]Sink
	// Replica is the name of this replica.
	Replica string
	Clock   clock.PassiveClock
	Lost    Lost
	Log     logr.Logger
}

// Recorder hands entries to sinks. Its methods can be called from any goroutine and never
// wait: if a sink is too slow, entries for it are dropped and counted. A nil Recorder
// records nothing.
type Recorder struct {
	outlets  []*outlet
	replica  string
	clock    clock.PassiveClock
	refusals *kubeutil.Budget
}

// New returns a Recorder. Entries that it gets before Run is called wait.
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

// Run hands entries to the sinks until ctx is done, and then the remaining entries.
func (r *Recorder) Run(ctx context.Context) {
	if r == nil {
		return
	}
	var wg sync.WaitGroup
	for _, o := range r.outlets {
		wg.Go(func() { o.run(ctx) })
	}
	wg.Wait()
}

// Granted records that the block of a record belongs to its holder.
func (r *Recorder) Granted(record ipam.Record, reason Reason) {
	r.recordOf(record, Granted, reason)
}

// Retained records that the block of a record is kept without its holder. The record is in its
// new state.
func (r *Recorder) Retained(record ipam.Record, reason Reason) {
	r.recordOf(record, Retained, reason)
}

// Released records that the block of a record is free.
func (r *Recorder) Released(record ipam.Record, reason Reason) {
	r.recordOf(record, Released, reason)
}

func (r *Recorder) recordOf(record ipam.Record, action Action, reason Reason) {
	if r == nil {
		return
	}
	e := Entry{
		Action: action, Reason: reason, Block: record.Block, AdditionalBlocks: record.AdditionalBlocks,
		PoolKind: string(record.Pool.Kind), PoolNamespace: record.Pool.Namespace, Pool: record.Pool.Name,
		Class: record.Class, Project: record.Project,
		HolderKind: record.Holder.Kind, HolderNamespace: record.Holder.Namespace, Holder: record.Holder.Name,
		HolderUID: record.HolderUID, RequestedBy: kubeutil.Truncate(record.RequestedBy, nameLength),
		Record: record.Name.String(), RecordUID: record.UID,
	}
	if action == Retained {
		e.State, e.Until = string(record.State), record.ReleaseAfter
	}
	r.add(e)
}

// Refusal represents a request that a webhook refuses.
type Refusal struct {
	// Kind, Namespace and Name identify the object of the request, and Operation is the
	// operation of the request on it.
	Kind, Namespace, Name, Operation string
	// Block is the block that the request asks for; not valid if it asks for none.
	Block netip.Prefix
	// User made the request.
	User string
	// Code, Reason and Message come from the Status that answers the request.
	Code            int32
	Reason, Message string
}

// Refused records that a request was refused, unless too many requests of its namespace were.
func (r *Recorder) Refused(refusal Refusal) {
	if r == nil {
		return
	}
	leftOut, ok := r.refusals.Spend(refusal.Namespace)
	if !ok {
		return
	}
	r.add(Entry{
		Action: Refused, Reason: Reason(refusal.Reason), Message: kubeutil.Truncate(refusal.Message, messageLength), Block: refusal.Block,
		HolderKind: refusal.Kind, HolderNamespace: refusal.Namespace, Holder: kubeutil.Truncate(refusal.Name, nameLength),
		RequestedBy: kubeutil.Truncate(refusal.User, nameLength), Operation: refusal.Operation, Code: refusal.Code, LeftOut: leftOut,
	})
}

func (r *Recorder) add(e Entry) {
	e.Time, e.Replica = r.clock.Now().UTC(), r.replica
	for _, o := range r.outlets {
		o.add(e)
	}
}

// closeWithin bounds the time for the last writes and the closing of the sink.
const closeWithin = 5 * time.Second

// outlet holds a sink and the entries that wait for it.
type outlet struct {
	name    string
	sink    Sink
	entries chan Entry
	lost    Lost
	log     logr.Logger

	// failing is true if the last write failed, and missing is the number of entries that were
	// not written since then. Only run uses them.
	failing bool
	missing int
}

func (o *outlet) add(e Entry) {
	select {
	case o.entries <- e:
	default:
		o.lost(o.name, 1)
	}
}

func (o *outlet) run(ctx context.Context) {
	for {
		select {
		case e := <-o.entries:
			o.write(ctx, o.batch(e))
		case <-ctx.Done():
			o.end()
			return
		}
	}
}

// batch returns an entry and the entries that wait behind it, most at most.
func (o *outlet) batch(first Entry) []Entry {
	entries := []Entry{first}
	for len(entries) < most {
		select {
		case e := <-o.entries:
			entries = append(entries, e)
		default:
			return entries
		}
	}
	return entries
}

// end writes the remaining entries, and closes the sink.
func (o *outlet) end() {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	for len(o.entries) > 0 {
		o.write(ctx, o.batch(<-o.entries))
	}
	if err := o.sink.Close(ctx); err != nil {
		o.log.Error(err, "Could not close the history")
	}
}

// write hands entries to the sink. It logs when writing begins to fail, and when it works again,
// but not each failure.
func (o *outlet) write(ctx context.Context, entries []Entry) {
	if err := o.sink.Write(ctx, entries); err != nil {
		o.lost(o.name, len(entries))
		o.missing += len(entries)
		if !o.failing {
			o.log.Error(err, "Could not write the history: entries are lost until it can be written again")
		}
		o.failing = true
		return
	}
	if o.failing {
		o.log.Info("The history is written again", "lost", o.missing)
	}
	o.failing, o.missing = false, 0
}
