// Package suite holds the common parts of most suites: it starts a cluster for a test, makes
// clients and objects, and waits for the actions of other processes. Everything fails the test
// that it is called for; in a suite of Ginkgo that is GinkgoTB().
//
//	w := suite.Start(t, cluster.Options{Managers: 2})
//	w.Namespace("team")
//	w.Pools(build.Pool("p").CIDR("10.0.0.0/24").Obj())
package suite

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
)

// World holds a cluster with the administrator's client, for one test.
type World struct {
	*cluster.Cluster
	client.WithWatch
	testing.TB

	// Patience is the time limit of every wait.
	Patience time.Duration
}

// Start starts a cluster, which stops when the test ends. Waits in this world take up to 30
// seconds.
func Start(t testing.TB, options cluster.Options) *World {
	t.Helper()
	log.SetLogger(logr.Discard()) // warnings of the API server
	options.Progress = t.Output()
	running, err := cluster.Start(t.Context(), options)
	Must(t, err)
	t.Cleanup(func() {
		if err := running.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := &World{Cluster: running, TB: t, Patience: 30 * time.Second}
	w.WithWatch = w.Client(running.Config())
	return w
}

// For returns the same world for another test.
func (w *World) For(t testing.TB) *World {
	other := *w
	other.TB = t
	return &other
}

// Must fails the test on an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Client returns a client without a rate limit.
func (w *World) Client(config *rest.Config) client.WithWatch {
	w.Helper()
	k8s, err := cluster.NewClient(config)
	Must(w, err)
	return k8s
}

// As returns a client of a user, without a rate limit.
func (w *World) As(name string, groups ...string) client.WithWatch {
	w.Helper()
	config, err := w.User(name, groups...)
	Must(w, err)
	return w.Client(config)
}

// AsOperator returns a client under the operator's own service account.
func (w *World) AsOperator() client.WithWatch {
	w.Helper()
	config, err := w.OperatorConfig(w.Context())
	Must(w, err)
	return w.Client(config)
}

// Created creates objects.
func (w *World) Created(objects ...client.Object) {
	w.Helper()
	for _, obj := range objects {
		Must(w, w.Create(w.Context(), obj))
	}
}

// Deleted deletes objects that may be gone already.
func (w *World) Deleted(objects ...client.Object) {
	w.Helper()
	for _, obj := range objects {
		Must(w, client.IgnoreNotFound(w.Delete(w.Context(), obj)))
	}
}

// Namespace creates a namespace.
func (w *World) Namespace(name string) {
	w.Helper()
	w.Created(build.Namespace(name))
}

// Pools creates pools, and waits until each hands out blocks.
func (w *World) Pools(pools ...v1alpha1.Pool) {
	w.Helper()
	for _, pool := range pools {
		w.Created(pool)
		w.Ready(pool)
	}
}

// Ready waits until the pools hand out blocks.
func (w *World) Ready(pools ...v1alpha1.Pool) {
	w.Helper()
	for _, pool := range pools {
		w.Await(pool.GetName()+" is ready", func(ctx context.Context) bool {
			return w.Get(ctx, client.ObjectKeyFromObject(pool), pool) == nil && pool.PoolStatus().Phase == v1alpha1.PoolReady
		})
	}
}

// Gone waits until the objects do not exist any more.
func (w *World) Gone(objects ...client.Object) {
	w.Helper()
	for _, obj := range objects {
		w.Await(obj.GetName()+" is gone", func(ctx context.Context) bool {
			return apierrors.IsNotFound(w.Get(ctx, client.ObjectKeyFromObject(obj), obj.DeepCopyObject().(client.Object)))
		})
	}
}

// Await polls another process with yes, until that returns true.
func (w *World) Await(what string, yes func(context.Context) bool) {
	w.Helper()
	w.AwaitUnlessFailed(what, func(ctx context.Context) (bool, error) { return yes(ctx), nil })
}

// AwaitUnlessFailed polls as Await does, but gives up at the first error.
func (w *World) AwaitUnlessFailed(what string, yes func(context.Context) (bool, error)) {
	w.Helper()
	if err := wait.PollUntilContextTimeout(w.Context(), 20*time.Millisecond, w.Patience, true, yes); err != nil {
		w.Fatalf("waited in vain until %s: %v", what, err)
	}
}
