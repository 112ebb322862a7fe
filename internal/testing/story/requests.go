package story

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// Requests records the requests that are enqueued for a controller. It implements the part of
// kubeutil.Queue that sources use.
type Requests struct {
	kubeutil.Queue

	t    *testing.T
	mu   sync.Mutex
	came []string
}

// Started starts a source of a controller's requests, which ends with the story.
func (w *World) Started(s source.Source) *Requests {
	w.t.Helper()
	r := &Requests{t: w.t}
	suite.Must(w.t, s.Start(w.t.Context(), r))
	return r
}

// Add implements kubeutil.Queue.
func (r *Requests) Add(request reconcile.Request) { r.AddAfter(request, 0) }

// AddAfter implements kubeutil.Queue.
func (r *Requests) AddAfter(request reconcile.Request, after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := strings.TrimPrefix(request.String(), "/")
	if after > 0 {
		name = fmt.Sprintf("%s after %s", name, after)
	}
	r.came = append(r.came, name)
}

// Enqueued expects the requests that were enqueued since it was last called, such as "team/a",
// or "p after 1s", in any order and any number of times. Without arguments it expects none.
func (r *Requests) Enqueued(want ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	got := slices.Compact(slices.Sorted(slices.Values(r.came)))
	r.came = nil
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.t.Fatalf("%q are enqueued, want %q", got, want)
	}
}
