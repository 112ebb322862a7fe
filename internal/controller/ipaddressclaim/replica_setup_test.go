package ipaddressclaim

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// TestReplicaServesInstalledKinds sets up a replica, and makes its parts fail one after the other.
func TestReplicaServesInstalledKinds(t *testing.T) {
	for name, test := range map[string]struct {
		cache              fragileCache
		leaderErr, addErr  error
		isStarted, isAdded bool
	}{
		"nothing fails":                          {isStarted: true, isAdded: true},
		"the leader's controller fails":          {leaderErr: errBroken, isStarted: true, isAdded: true},
		"the Clusters of claims are not indexed": {cache: fragileCache{index: byCluster}, isAdded: true},
		"the pools of claims are not indexed":    {cache: fragileCache{index: byTarget}, isAdded: true},
		"addresses are not indexed":              {cache: fragileCache{index: byAddress}, isAdded: true},
		"claims cannot be watched":               {cache: fragileCache{informer: &ipamv1.IPAddressClaim{}}, isAdded: true},
		"claims cannot be handled":               {cache: fragileCache{handler: &ipamv1.IPAddressClaim{}}, isAdded: true},
		"IPAddresses cannot be watched":          {cache: fragileCache{informer: &ipamv1.IPAddress{}}, isAdded: true},
		"no controller can be added":             {addErr: errBroken, isAdded: true},
		"Clusters cannot be handled":             {cache: fragileCache{handler: &clusterv1.Cluster{}}},
	} {
		t.Run(name, func(t *testing.T) {
			mgr, parts, isStarted := newManager(t, &test.cache, true), emptyAllocator(t), false
			r := &Replica{
				Ledger: parts.Ledger, Catalog: parts.Catalog, Queue: parts.Queue, Client: mgr.GetClient(), Handler: toolscache.ResourceEventHandlerFuncs{},
				StartLeader: func() error { isStarted = true; return test.leaderErr },
			}
			err := r.SetupWithManager(mgr)
			if (err == nil) != test.isAdded || len(mgr.added) > 1 {
				t.Fatalf("got %v and %d runnables, want one: %t", err, len(mgr.added), test.isAdded)
			}
			if test.isAdded {
				mgr.err = test.addErr
				err = mgr.added[0].Start(t.Context())
			}
			if isFine := test.leaderErr == nil && test.isStarted; isFine != (err == nil) || !isFine && !errors.Is(err, errBroken) || isStarted != test.isStarted {
				t.Errorf("got %v, and the leader's controller is started: %t, want %t", err, isStarted, test.isStarted)
			}
		})
	}
}

// TestMissingKindsAreAwaited sets up a replica where Cluster API is not installed.
func TestMissingKindsAreAwaited(t *testing.T) {
	for _, want := range []error{nil, errBroken} {
		mgr, parts := newManager(t, &fragileCache{}, false), emptyAllocator(t)
		mgr.err = want
		r := &Replica{Ledger: parts.Ledger, Catalog: parts.Catalog, Queue: parts.Queue, Client: mgr.GetClient()}
		if err := r.SetupWithManager(mgr); !errors.Is(err, want) || len(mgr.added) == 1 == (want != nil) {
			t.Errorf("got %v and %d controllers, want %v", err, len(mgr.added), want)
		}
	}
}

// newManager returns a manager without an API server.
func newManager(t *testing.T, informers *fragileCache, isInstalled bool) *runnables {
	t.Helper()
	scheme := schemeOf(t, ipamv1.AddToScheme, clusterv1.AddToScheme, metav1.AddMetaToScheme)
	informers.Scheme = scheme
	mapper := meta.NewDefaultRESTMapper(nil)
	if isInstalled {
		for _, gvk := range requiredKinds() {
			mapper.Add(gvk, meta.RESTScopeNamespace)
		}
	}
	mgr, err := manager.New(&rest.Config{}, manager.Options{
		Scheme: scheme, Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: new(true)},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
		NewCache:       func(*rest.Config, cache.Options) (cache.Cache, error) { return informers, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return &runnables{Manager: mgr}
}

// fragileCache implements a cache of which one part fails: an index, an informer of the kind, or a handler
// of it.
type fragileCache struct {
	informertest.FakeInformers
	index             string
	informer, handler client.Object
}

// IndexField implements client.FieldIndexer.
func (c *fragileCache) IndexField(_ context.Context, _ client.Object, field string, _ client.IndexerFunc) error {
	if field == c.index {
		return errBroken
	}
	return nil
}

// GetInformer implements cache.Informers.
func (c *fragileCache) GetInformer(ctx context.Context, obj client.Object, options ...cache.InformerGetOption) (cache.Informer, error) {
	if reflect.TypeOf(obj) == reflect.TypeOf(c.informer) {
		return nil, errBroken
	}
	informer, err := c.FakeInformers.GetInformer(ctx, obj, options...)
	if reflect.TypeOf(obj) == reflect.TypeOf(c.handler) {
		return fragileInformer{informer}, err
	}
	return informer, err
}

// fragileInformer implements an informer to which no handler can be added.
type fragileInformer struct{ cache.Informer }

// AddEventHandler implements cache.Informer.
func (fragileInformer) AddEventHandler(toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return nil, errBroken
}
