package history

import (
	"context"
	"time"

	"github.com/go-logr/logr"
)

// closeWithin bounds what is written after the end.
const closeWithin = 5 * time.Second

// outlet is a sink with the entries that wait for it.
type outlet struct {
	name    string
	sink    Sink
	entries chan Entry
	lost    Lost
	log     logr.Logger

	// failing says that the last write failed, and missing how many entries were since then
	// not written. They are run's.
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

// batch is an entry with those that wait behind it.
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

// end writes what is left, and closes the sink.
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

// write says in the log when writing begins to fail, and when it is over, but not each time.
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
