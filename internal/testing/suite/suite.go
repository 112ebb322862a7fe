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
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
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

// Must fails the test on an error. It skips a short test if the control plane has not been built.
func Must(t testing.TB, err error) {
	t.Helper()
	if testing.Short() && errors.Is(err, cluster.ErrNotBuilt) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// ModuleRoot returns the directory of the module.
func ModuleRoot(t testing.TB) string {
	t.Helper()
	root, err := cluster.ModuleRoot()
	Must(t, err)
	return root
}

// Kustomized returns the output of kustomize for a directory, of the module or anywhere else.
func Kustomized(t testing.TB, dir string) string {
	t.Helper()
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(ModuleRoot(t), dir)
	}
	kubectl, err := cluster.Binary("kubectl")
	Must(t, err)
	out, err := exec.CommandContext(t.Context(), kubectl, "kustomize", dir).Output()
	if failure := new(exec.ExitError); errors.As(err, &failure) {
		t.Fatalf("kubectl kustomize %s: %v: %s", dir, err, failure.Stderr)
	}
	Must(t, err)
	return string(out)
}

// IsCut reports whether a connection was cut in mid-request: that of the client, or that of the
// API server to a webhook.
func IsCut(err error) bool {
	if utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || errors.Is(err, syscall.ECONNREFUSED) {
		return true
	}
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook") &&
		slices.ContainsFunc([]string{": EOF", "connection reset", "connection refused", "server closed idle connection", "GOAWAY"},
			func(cause string) bool { return strings.Contains(err.Error(), cause) })
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

// Bound waits until the claims have their blocks.
func (w *World) Bound(claims ...*v1alpha1.IPClaim) {
	w.Helper()
	for _, claim := range claims {
		w.Await(claim.Name+" is bound", func(ctx context.Context) bool {
			return w.Get(ctx, client.ObjectKeyFromObject(claim), claim) == nil && claim.Status.Phase == v1alpha1.ClaimBound
		})
	}
}

// Served waits until the claims have their addresses.
func (w *World) Served(claims ...*ipamv1.IPAddressClaim) {
	w.Helper()
	for _, claim := range claims {
		w.Await(claim.Name+" has its address", func(ctx context.Context) bool {
			return w.Get(ctx, client.ObjectKeyFromObject(claim), claim) == nil && claim.Status.AddressRef.Name == claim.Name
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

// Retained deletes an IPClaim, and waits until its block is retained.
func (w *World) Retained(namespace, name string) {
	w.Helper()
	claim, record := &v1alpha1.IPClaim{}, &v1alpha1.IPAllocation{}
	Must(w, w.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: name}, claim))
	w.Deleted(claim)
	w.Await(name+" is retained", func(ctx context.Context) bool {
		return w.Get(ctx, client.ObjectKey{Namespace: namespace, Name: claim.Spec.AllocationName}, record) == nil && record.Spec.State == v1alpha1.AllocationRetained
	})
}

// Sized returns how much a test does: all, or less with go test -short.
func Sized[T any](all, short T) T {
	if testing.Short() {
		return short
	}
	return all
}

// Setting returns the value of an environment variable, or the usual value if it is not set.
func Setting[T any](t testing.TB, name string, usual T, parse func(string) (T, error)) T {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	value, err := parse(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return value
}

// Seed returns the Setting of a seed for random choices.
func Seed(t testing.TB, name string, usual uint64) uint64 {
	t.Helper()
	return Setting(t, name, usual, func(text string) (uint64, error) { return strconv.ParseUint(text, 10, 64) })
}

// Step holds a subtest in a world of type W that builds on those before it.
type Step[W any] struct {
	Name string
	Run  func(W)
}

// Steps runs steps in their order until one fails, each in the world that in makes for it.
func Steps[W any](t *testing.T, in func(*testing.T) W, steps ...Step[W]) {
	t.Helper()
	for _, step := range steps {
		if !t.Run(step.Name, func(t *testing.T) { step.Run(in(t)) }) {
			return
		}
	}
}

// RunKubectl runs kubectl as Kubectl does, and fails the test on an error.
func (w *World) RunKubectl(args ...string) string {
	w.Helper()
	out, err := w.Kubectl(w.Context(), args...)
	Must(w, err)
	return out
}
