package controller

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/controller/allocationgc"
	"github.com/cadastre-dev/cadastre/internal/controller/ipaddressclaim"
	"github.com/cadastre-dev/cadastre/internal/controller/ipclaim"
	"github.com/cadastre-dev/cadastre/internal/controller/ipclass"
	"github.com/cadastre-dev/cadastre/internal/controller/ippool"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// TestControllersServeWhatAdmissionMissed lets the leader alone, with all its watches, serve claims
// and pools that no admission has seen, from their beginning to their end.
func TestControllersServeWhatAdmissionMissed(t *testing.T) {
	e := run(t, story.Start(t, cluster.Options{ClusterAPICRDs: true}))

	class, pool, local := build.Class("gold").Obj(), build.Pool("p").CIDR("10.0.0.0/30").Classes("gold").Obj(), build.Pool("own").CIDR("10.0.0.0/24").In(story.Team)
	hosts := build.Pool("hosts").CIDR("10.1.0.0/24").Obj()
	e.Created(class, pool, local, hosts)
	for _, item := range []v1alpha1.Pool{pool, local, hosts} {
		e.until("a pool is ready", item, func() bool { return isReady(item.PoolStatus().Conditions) })
	}
	e.until("the class counts its pool", class, func() bool { return class.Status.Pools == 1 })

	claims := map[string]*v1alpha1.IPClaim{}
	for _, name := range []string{"a", "b"} {
		claims[name] = build.Claim(story.Team, name).Pool("p").Length(31).Obj()
		e.Created(claims[name])
		e.until("a claim is bound", claims[name], func() bool { return isReady(claims[name].Status.Conditions) })
	}
	waits := build.Claim(story.Team, "c").Class("gold").Length(31).Obj()
	e.Created(waits)
	e.until("a claim waits", waits, func() bool { return waits.Status.Phase == v1alpha1.ClaimExhausted })
	e.until("the pool is full", pool, func() bool { return pool.Status.Phase == v1alpha1.PoolExhausted })
	e.Deleted(claims["a"])
	e.until("a claim that waited is bound", waits, func() bool { return isReady(waits.Status.Conditions) })

	orphan := story.Block("nobody", "own", "10.0.0.0/28")
	orphan.Pool = convert.KeyOf(local)
	e.Recorded(orphan)
	e.untilGone("an orphan is collected", convert.Allocation(orphan))

	address := build.AddressClaim(story.Team, "h").Pool("hosts").Obj()
	e.Created(address)
	e.until("a claim has its address", address, func() bool { return isReady(address.Status.Conditions) })
	record := e.RecordsOf(convert.HolderOfAddressClaim(ipam.Name{Namespace: story.Team, Name: "h"}))[0]
	e.Deleted(address)
	e.untilGone("the claim of an address goes", address)
	e.untilGone("its record is collected", convert.Allocation(record))

	own := e.RecordsOf(convert.HolderOfPool(convert.KeyOf(pool)))[0]
	e.Deleted(pool)
	e.until("a pool that is in use stays", pool, func() bool { return pool.Status.Phase == v1alpha1.PoolTerminating })
	e.Deleted(claims["b"])
	e.Deleted(waits)
	e.untilGone("a pool that is not in use goes", pool)
	e.untilGone("its record is collected", convert.Allocation(own))
	e.until("the class counts no pool", class, func() bool { return class.Status.Pools == 0 })
}

func isReady(conditions []metav1.Condition) bool {
	return meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReady)
}

// running holds a story with all controllers.
type running struct {
	*story.World
	t *testing.T
}

func run(t *testing.T, plane *story.Plane) *running {
	t.Helper()
	e := &running{World: plane.Begin(t), t: t}
	scheme, err := cluster.Scheme()
	suite.Must(t, err)
	mgr, err := manager.New(plane.Config(), manager.Options{
		Scheme: scheme, Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true), UsePriorityQueue: new(false)},
	})
	suite.Must(t, err)
	suite.Must(t, Setup(mgr, Options{
		Ledger: e.Ledger, Catalog: e.Catalog, Queue: e.Queue, Allocator: e.Allocator, Metrics: e.Metrics, History: e.History,
		Live: mgr.GetAPIReader(), Asker: e.Asker(), OrphanGrace: time.Second, Workers: 2, Namespace: story.System,
		AddressClaims: cache.ResourceEventHandlerFuncs{},
	}))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return e
}

// until waits until the stored object satisfies a condition.
func (e *running) until(what string, obj client.Object, is func() bool) {
	e.t.Helper()
	e.await(what, func(ctx context.Context) bool {
		return e.K8s.Get(ctx, client.ObjectKeyFromObject(obj), obj) == nil && is()
	})
}

// untilGone waits until an object is not stored any more.
func (e *running) untilGone(what string, obj client.Object) {
	e.t.Helper()
	e.await(what, func(ctx context.Context) bool {
		err := e.K8s.Get(ctx, client.ObjectKeyFromObject(obj), obj.DeepCopyObject().(client.Object))
		return err != nil && client.IgnoreNotFound(err) == nil
	})
}

func (e *running) await(what string, yes func(context.Context) bool) {
	e.t.Helper()
	err := wait.PollUntilContextTimeout(e.t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) { return yes(ctx), nil })
	if err != nil {
		e.t.Fatalf("waited in vain until %s: %v", what, err)
	}
}

// TestRegistrationFailureIsReported registers each controller twice: no name is left
// for the second.
func TestRegistrationFailureIsReported(t *testing.T) {
	r := replica.New(replica.Options{})
	for name, c := range map[string]interface{ SetupWithManager(manager.Manager) error }{
		"allocationgc":   &allocationgc.Controller{Ledger: r.Ledger, Catalog: r.Catalog, Metrics: r.Metrics, Allocator: r.Allocator},
		"ipaddressclaim": &ipaddressclaim.Controller{Ledger: r.Ledger, Catalog: r.Catalog, Metrics: r.Metrics, Queue: r.Queue, Allocator: r.Allocator, Orphans: noOrphans{}},
		"ipclaim":        &ipclaim.Controller{Ledger: r.Ledger, Catalog: r.Catalog, Metrics: r.Metrics, Queue: r.Queue, Allocator: r.Allocator},
		"ipclass":        &ipclass.Controller{Ledger: r.Ledger, Catalog: r.Catalog, Metrics: r.Metrics, Queue: r.Queue},
		"ippool":         &ippool.Controller{Ledger: r.Ledger, Catalog: r.Catalog, Metrics: r.Metrics, Queue: r.Queue, Allocator: r.Allocator},
	} {
		t.Run(name, func(t *testing.T) {
			mgr := newUnconnectedManager(t)
			suite.Must(t, setup(mgr, c))
			if err := setup(mgr, c); err == nil {
				t.Error("a second one of the name is registered")
			}
		})
	}
}

var errBroken = errors.New("broken")

// brittleManager implements a manager without an API server. Some additions of runnables and indexes
// succeed, and the next one fails.
type brittleManager struct {
	manager.Manager
	inCluster  bool
	succeeding int
	added      []manager.Runnable
}

// Add implements manager.Manager.
func (m *brittleManager) Add(r manager.Runnable) error {
	if err := m.count(); err != nil {
		return err
	}
	m.added = append(m.added, r)
	return nil
}

// count counts an addition, and returns the error of the one that fails.
func (m *brittleManager) count() error {
	if m.succeeding--; m.succeeding == -1 {
		return errBroken
	}
	return nil
}

// GetFieldIndexer implements manager.Manager.
func (m *brittleManager) GetFieldIndexer() client.FieldIndexer { return m }

// IndexField implements client.FieldIndexer.
func (m *brittleManager) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return m.count()
}

// setUp sets up all controllers.
func (m *brittleManager) setUp(t *testing.T) error {
	t.Helper()
	scheme, err := cluster.Scheme()
	suite.Must(t, errors.Join(err, metav1.AddMetaToScheme(scheme)))
	m.Manager, err = manager.New(&rest.Config{Host: "https://127.0.0.1:1"}, manager.Options{
		Scheme: scheme, Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return testrestmapper.TestOnlyStaticRESTMapper(scheme), nil
		},
		NewCache: func(*rest.Config, ctrlcache.Options) (ctrlcache.Cache, error) {
			return &informertest.FakeInformers{Scheme: scheme}, nil
		},
	})
	suite.Must(t, err)
	r := replica.New(replica.Options{Ledger: ledger.New(ledger.Options{Clock: clock.RealClock{}})})
	return Setup(m, Options{
		Ledger: r.Ledger, Catalog: r.Catalog, Queue: r.Queue, Allocator: r.Allocator, Metrics: r.Metrics, History: r.History,
		Live: m.GetAPIReader(), Workers: 2, AddressClaims: cache.ResourceEventHandlerFuncs{}, Targets: convert.Targets{InCluster: m.inCluster},
	})
}

// TestPoolsOfInClusterProviderAreReconciledIfEnabled counts the controllers.
func TestPoolsOfInClusterProviderAreReconciledIfEnabled(t *testing.T) {
	plain, inCluster := &brittleManager{succeeding: 100}, &brittleManager{succeeding: 100, inCluster: true}
	suite.Must(t, errors.Join(plain.setUp(t), inCluster.setUp(t)))
	if more := len(inCluster.added) - len(plain.added); more != 2 {
		t.Errorf("%d more controllers, want one for each of the two kinds", more)
	}
}

// TestSetupReportsFirstFailure makes each addition to the manager fail, one at a time: first when the
// operator starts, then when the kinds of Cluster API are there.
func TestSetupReportsFirstFailure(t *testing.T) {
	const few = 3 // controllers at least
	for n := range 100 {
		m := &brittleManager{succeeding: n, inCluster: true}
		if err := m.setUp(t); errors.Is(err, errBroken) != (m.succeeding < 0) {
			t.Fatalf("with %d additions it returns %v", n, err)
		}
		if m.succeeding < 0 {
			continue
		}
		if n < few {
			t.Errorf("it adds %d controllers", n)
		}
		break
	}
	for n := range 100 {
		m := &brittleManager{succeeding: 100}
		suite.Must(t, m.setUp(t))
		m.succeeding = n
		if err := m.added[len(m.added)-1].Start(t.Context()); errors.Is(err, errBroken) != (m.succeeding < 0) {
			t.Fatalf("with %d additions the controllers for Cluster API return %v", n, err)
		}
		if m.succeeding < 0 {
			continue
		}
		if n < few {
			t.Errorf("it adds %d controllers for Cluster API", n)
		}
		break
	}
}

func TestConflictsAreNotifiedUntilTheEnd(t *testing.T) {
	m := &brittleManager{succeeding: 100}
	suite.Must(t, m.setUp(t))
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var ended atomic.Bool
		go func() {
			_ = m.added[0].Start(ctx)
			ended.Store(true)
		}()
		if synctest.Wait(); ended.Load() {
			t.Error("it ends at once")
		}
		stop()
	})
}

func TestOrphansAreCollectedInWatchedNamespace(t *testing.T) {
	for name, c := range map[string]struct {
		watched string
		want    map[string]bool
	}{
		"all":           {want: map[string]bool{"team": true, "other": true, "system": true}},
		"one namespace": {watched: "team", want: map[string]bool{"team": true, "other": false, "system": true}},
	} {
		o := Options{Namespace: "system", WatchNamespace: c.watched}
		for namespace, want := range c.want {
			if got := o.recordNamespaces().Has(namespace); got != want {
				t.Errorf("%s is watched: records of %s are collected: %t, want %t", name, namespace, got, want)
			}
		}
	}
}

// newUnconnectedManager returns a manager that is never started.
func newUnconnectedManager(t *testing.T) manager.Manager {
	t.Helper()
	scheme, err := cluster.Scheme()
	suite.Must(t, err)
	mgr, err := manager.New(&rest.Config{Host: "https://127.0.0.1:1"}, manager.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
	})
	suite.Must(t, err)
	return mgr
}

// noOrphans implements ipaddressclaim.Orphans, and collects none.
type noOrphans struct{}

func (noOrphans) Judge(string, func(context.Context, client.Reader, ipam.Record) (bool, error)) {}
func (noOrphans) ReportDeleted(string, ipam.Name)                                               {}
func (noOrphans) Enqueue(ipam.Name)                                                             {}
