// Package security holds the operator to what it says of rights: its own, and
// those of tenants.
package security

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/test/framework/cluster"
)

// world is a cluster with a client, for one test.
type world struct {
	*cluster.Cluster
	client.WithWatch
	t *testing.T
}

func TestSecurity(t *testing.T) {
	running, err := cluster.Start(t.Context(), cluster.Options{
		Managers: 2, ControllerManager: true, Audit: true, Progress: t.Output(),
		ManagerArgs: []string{"--orphan-grace=2s", fmt.Sprint("--unclaimed-limit=", unclaimedLimit)}, APIServerFlags: map[string]string{"enable-admission-plugins": "OwnerReferencesPermissionEnforcement"},
	})
	must(t, err)
	t.Cleanup(func() { must(t, running.Stop()) })
	admin := clientFor(t, running.Config())
	for _, step := range []struct {
		name string
		do   func(*world)
	}{
		{"metrics and profiles are for those who may get them", (*world).diagnosticsAreGuarded},
		{"an answer does not tell what is taken from what is forbidden", (*world).answersAreAlike},
		{"a request of any size is answered", (*world).sizeIsBounded},
		{"a request that does not end is answered", (*world).timeIsBounded},
		{"a namespace whose claims are never stored is stopped, and no other", (*world).unboundIsBounded},
		{"webhooks answer no path without the secret", (*world).onlyTheSecretIsAnswered},
		{"a path with the secret before is answered for the overlap", (*world).pathsAreRotated},
		{"manifests that others apply change neither path nor bundle", (*world).manifestsLeavePathsAlone},
		{"everything that the operator does", (*world).everythingIsDone},
		{"a right that comes after what waits for it counts", (*world).aLateRightCounts},
		{"an object can be edited and deleted, whatever its spec", (*world).everythingIsEditable},
		{"the operator uses the rights that it has, and has those that it uses", (*world).rightsAreUsed},
	} {
		t.Run(step.name, func(t *testing.T) { step.do(&world{Cluster: running, WithWatch: admin, t: t}) })
	}
}

// must fails the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) create(objs ...client.Object) {
	w.t.Helper()
	for _, obj := range objs {
		must(w.t, w.Create(w.t.Context(), obj))
	}
}

func (w *world) delete(objs ...client.Object) {
	w.t.Helper()
	for _, obj := range objs {
		must(w.t, client.IgnoreNotFound(w.Delete(w.t.Context(), obj)))
	}
}

// namespace of a project; of its own where none is named.
func (w *world) namespace(name, project string) {
	w.t.Helper()
	obj := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if project != "" {
		obj.Labels = map[string]string{v1alpha1.LabelProject: project}
	}
	w.create(obj)
}

func (w *world) ready(pools ...*v1alpha1.IPPool) {
	w.t.Helper()
	for _, pool := range pools {
		w.create(pool)
		w.eventually(pool.Name+" is ready", func(ctx context.Context) bool {
			return w.Get(ctx, client.ObjectKeyFromObject(pool), pool) == nil && pool.Status.Phase == v1alpha1.PoolReady
		})
	}
}

func (w *world) bound(claim *v1alpha1.IPClaim) {
	w.t.Helper()
	w.eventually(claim.Name+" is bound", func(ctx context.Context) bool {
		return w.Get(ctx, client.ObjectKeyFromObject(claim), claim) == nil && claim.Status.Phase == v1alpha1.ClaimBound
	})
}

// eventually asks another process until it says yes.
func (w *world) eventually(what string, yes func(context.Context) bool) {
	w.t.Helper()
	err := wait.PollUntilContextTimeout(w.t.Context(), 20*time.Millisecond, 30*time.Second, true,
		func(ctx context.Context) (bool, error) { return yes(ctx), nil })
	if err != nil {
		w.t.Fatalf("waited in vain until %s", what)
	}
}

func clientFor(t *testing.T, cfg *rest.Config) client.WithWatch {
	t.Helper()
	cfg.QPS = -1
	scheme := runtime.NewScheme()
	must(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), clusterv1.AddToScheme(scheme), ipamv1.AddToScheme(scheme)))
	k8s, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	must(t, err)
	return k8s
}
