// Package entries has recorders of the history that keep in memory what they are given.
package entries

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/internal/history"
)

// kept is a sink.
type kept []history.Entry

// Write implements history.Sink.
func (k *kept) Write(_ context.Context, entries []history.Entry) error {
	*k = append(*k, entries...)
	return nil
}

// Close implements history.Sink.
func (*kept) Close(context.Context) error { return nil }

// Recorder is a recorder, and a function that returns the entries since it was last called.
func Recorder() (r *history.Recorder, take func() []history.Entry) {
	k := &kept{}
	r = history.New(history.Options{
		Sinks: map[string]history.Sink{"memory": k}, Clock: clock.RealClock{}, Lost: func(string, int) {}, Log: logr.Discard(),
	})
	stopped, stop := context.WithCancel(context.Background())
	stop()
	return r, func() []history.Entry {
		r.Run(stopped) // hands over what waits
		all := *k
		*k = nil
		return all
	}
}
