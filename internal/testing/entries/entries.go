// Package entries holds recorders of the history that keep the given entries in memory.
package entries

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/internal/observe/history"
)

// Kept implements a sink that keeps the given entries.
type Kept []history.Entry

// Write implements history.Sink.
func (k *Kept) Write(_ context.Context, entries []history.Entry) error {
	*k = append(*k, entries...)
	return nil
}

// Close implements history.Sink.
func (*Kept) Close(context.Context) error { return nil }

// Take returns the entries of a recorder, of which this is a sink, since it was last called.
func (k *Kept) Take(recorder *history.Recorder) []history.Entry {
	stopped, stop := context.WithCancel(context.Background())
	stop()
	recorder.Run(stopped) // hands over the entries that wait
	all := *k
	*k = nil
	return all
}

// Recorder returns a recorder, and a function that returns the entries since it was last
// called.
func Recorder() (r *history.Recorder, take func() []history.Entry) {
	k := &Kept{}
	r = history.New(history.Options{
		Sinks: map[string]history.Sink{"memory": k}, Clock: clock.RealClock{}, Lost: func(string, int) {}, Log: logr.Discard(),
	})
	return r, func() []history.Entry { return k.Take(r) }
}
