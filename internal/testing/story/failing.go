package story

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Failing runs a story twice for each call of the API that a pass makes: once the API server
// fails without doing the request, and once it does the request and then fails. The pass is
// expected to end with an error, so that it is tried again. The passes after it do the rest.
// The Interruption that begin returns has no Act.
func (w *World) Failing(begin func(n int) Interruption) {
	w.t.Helper()
	for n, failed := 0, true; failed; n++ {
		i := begin(n)
		failed = false
		w.kept = nil
		w.moments.arm(n, func(what string) error {
			w.t.Logf("n=%d: the API server fails %s", n, what)
			failed = true
			return apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
		})
		for range passesInterrupted {
			before := failed
			if err := w.passed(i); err == nil && failed != before {
				w.t.Fatal("a call failed, and the pass ended without an error: it is not tried again")
			}
		}
		w.moments.disarm()
		w.settled(i)
	}
}
