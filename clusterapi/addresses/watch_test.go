package addresses

import (
	"context"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// TestWatchTriggersOwner runs a controller whose informers are fakes.
func TestWatchTriggersOwner(t *testing.T) {
	w := newWorld(t)
	w.waits("IPAddressClaim web-eth0-0 has no address yet" + notServed)
	address := w.serve("web-eth0-0", "10.0.0.5", 24, "")

	informers := &informertest.FakeInformers{Scheme: w.Scheme()}
	informer := func(object client.Object) *controllertest.FakeInformer {
		informer, err := informers.FakeInformerFor(t.Context(), object)
		w.do(err)
		return informer
	}
	claims, addresses := informer(&ipamv1.IPAddressClaim{}), informer(&ipamv1.IPAddress{})
	mgr, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{
		Scheme:         w.Scheme(),
		NewCache:       func(*rest.Config, cache.Options) (cache.Cache, error) { return informers, nil },
		NewClient:      func(*rest.Config, client.Options) (client.Client, error) { return w, nil },
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return w.RESTMapper(), nil },
		Metrics:        server.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: new(true)}, // with -count
	})
	w.do(err)

	passes := make(chan string, 10)
	started := make(chan event.GenericEvent, 1)
	started <- event.GenericEvent{Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "started"}}}
	b := ctrl.NewControllerManagedBy(mgr).Named("watch").
		WatchesRawSource(source.Channel(started, &handler.EnqueueRequestForObject{})) // passes begin when all watches have
	w.do(Watch(b, mgr.GetClient(), &corev1.ConfigMap{}))
	w.do(b.Complete(reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
		passes <- request.String()
		return reconcile.Result{}, nil
	})))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		w.do(<-ended)
	})
	next := func(want string) {
		t.Helper()
		select {
		case got := <-passes:
			w.equal("pass", got, want)
		case <-time.After(30 * time.Second):
			t.Fatalf("no pass for %s", want)
		}
	}
	next("/started")
	claims.Add(w.claim("web-eth0-0"))
	next("default/web")
	addresses.Delete(address)
	next("default/web")
}

func TestWatchFailsForUnknownKind(t *testing.T) {
	w := newWorld(t)
	if err := Watch(ctrl.NewControllerManagedBy(nil), w, &clusterv1.Cluster{}); err == nil {
		t.Error("no error for a kind that the scheme does not have")
	}
}

func TestOwnersAreThoseOfTheKind(t *testing.T) {
	claim := &ipamv1.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "example.com/v1", Kind: "Machine", Name: "a", Controller: new(true)},
		{APIVersion: "example.com/v1", Kind: "Rack", Name: "b"},
		{APIVersion: "example.org/v1", Kind: "Machine", Name: "c"},
		{APIVersion: "example.com/v2", Kind: "Machine", Name: "d"},
	}}}
	var got []string
	for _, request := range owners(claim, schema.GroupKind{Group: "example.com", Kind: "Machine"}) {
		got = append(got, request.String())
	}
	(&world{T: t}).equal("owners", got, []string{"default/a", "default/d"})
}

func TestIPAddressTriggersOwnerOfItsClaim(t *testing.T) {
	w := newWorld(t)
	w.waits("IPAddressClaim web-eth0-0 has no address yet" + notServed)
	address := w.serve("web-eth0-0", "10.0.0.5", 24, "")
	address.Name = "other" // the contract only recommends the name of the claim
	kind := schema.GroupKind{Kind: "ConfigMap"}
	want := []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: "default", Name: "web"}}}
	w.equal("owners", claimOwners(t.Context(), w, address, kind), want)
	w.hide()
	w.equal("owners", claimOwners(t.Context(), w.machine.Client, address, kind), []reconcile.Request(nil))
}
