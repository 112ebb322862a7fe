package history

import (
	"context"
	"time"

	"github.com/go-logr/logr"
)

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
