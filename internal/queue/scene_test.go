package queue

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// scene holds a queue on a ledger that has seen all stored records, in a bubble of synctest:
// synctest.Wait returns when every goroutine in it waits.
type scene struct {
	t       *testing.T
	pool    ipam.Pool
	queue   *Queue
	catalog *inventory.Catalog
	ledger  *ledger.Ledger
	records *fcache.FakeControllerSource
	// namespaces and pools feed the catalog.
	namespaces, pools *controllertest.FakeInformer
}

// listFirst lists first, then watches.
type listFirst struct{ *fcache.FakeControllerSource }

// IsWatchListSemanticsUnSupported makes the reflector list first, then watch.
func (listFirst) IsWatchListSemanticsUnSupported() bool { return true }

// runScene plays a scene. The own record of its pool is stored, and a namespace has at most as many
// waiters as the options state.
func runScene(t *testing.T, o Options, play func(*scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{
			t: t, records: fcache.NewFakeControllerSource(),
			pool: ipam.Pool{
				Key: ipam.PoolNamed("p"), Home: ipam.DomainNamed("default", ipam.IPv4), CIDR: netip.MustParsePrefix("10.0.0.0/29"),
				Family: ipam.IPv4, Strategy: ipam.StrategyFirstFit, Lengths: ipam.Lengths{Min: 29, Max: 32},
			},
		}
		s.ledger = ledger.New(ledger.Options{Clock: clock.RealClock{}, Silence: time.Minute})
		s.catalog = inventory.New(inventory.Options{Ledger: s.ledger, Namespace: "system"})
		s.ledger.Describe(s.pool)
		o.Ledger, o.Catalog, o.Log = s.ledger, s.catalog, logr.Discard()
		s.queue = New(o)
		if _, err := s.catalog.Feed(t.Context(), s.informers()); err != nil {
			t.Fatal(err)
		}
		s.stores(ipam.Record{
			Name: s.catalog.RecordOfPool(s.pool.Key), Block: s.pool.CIDR, Pool: s.pool.Home,
			Holder: convert.HolderOfPool(s.pool.Key), Purpose: ipam.PurposePool,
		})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.ledger.Run(ctx, listFirst{s.records}, &v1alpha1.IPAllocation{}) })
		synctest.Wait()
		play(s)
		s.queue.Close()
		stop()
		running.Wait()
		s.records.Shutdown()
	})
}

// informers returns those that feed the catalog.
func (s *scene) informers() *informertest.FakeInformers {
	s.t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), metav1.AddMetaToScheme(scheme)); err != nil {
		s.t.Fatal(err)
	}
	s.namespaces, s.pools = controllertest.NewFakeInformer(), controllertest.NewFakeInformer()
	return &informertest.FakeInformers{Scheme: scheme, InformersByGVK: map[schema.GroupVersionKind]cache.SharedIndexInformer{
		{Group: "meta.k8s.io", Version: "v1", Kind: "PartialObjectMetadata"}: s.namespaces,
		v1alpha1.GroupVersion.WithKind("IPPool"):                             s.pools,
	}}
}

// stores stores a record, and returns the object to release.
func (s *scene) stores(record ipam.Record) *v1alpha1.IPAllocation {
	record.Reclaim, record.State = ipam.ReclaimDelete, ipam.StateBound
	record.UID = record.Name.String()
	obj := convert.Allocation(record)
	s.records.Add(obj)
	synctest.Wait()
	return obj
}

// open shows all objects, and the scene's pool with the project of the claims' namespace.
func (s *scene) open() {
	s.t.Helper()
	s.catalog.SetProject("ns", "ns")
	s.catalog.SetPool(s.pool)
	if err := s.queue.Synced(); err != nil {
		s.t.Fatal(err)
	}
}

// holds holds a block of the scene's pool as another request does.
func (s *scene) holds(name string, bits int) *ledger.Hold {
	s.t.Helper()
	hold, err := s.ledger.Hold(ledger.Ask{Pool: s.pool.Key, Bits: bits, Record: ipam.Name{Namespace: "ns", Name: name}})
	if err != nil {
		s.t.Fatal(err)
	}
	return hold
}

// ask returns the request of a newcomer to the ledger.
func (s *scene) ask(name string, bits int) ledger.Ask {
	return ledger.Ask{
		Pool: s.pool.Key, Bits: bits, Record: ipam.Name{Namespace: "ns", Name: name}, Holder: claim(name),
		Turn: s.queue.Turn(s.pool, claim(name), Waiter{}),
	}
}

func claim(name string) ipam.Holder {
	return convert.HolderOfClaim(ipam.Name{Namespace: "ns", Name: name})
}

// waits queues a claim.
func (s *scene) waits(name string, r ipam.Request) {
	r.Claim = ipam.Name{Namespace: "ns", Name: name}
	s.queue.Wait(Waiter{Holder: claim(name), Request: r})
}

// IsQueued reports whether a holder is in the pool queue of a pool.
func (q *poolQueues) IsQueued(holder ipam.Holder, pool ipam.PoolKey) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.waiters[holder]
	return p != nil && p.isQueued() && slices.Contains(p.wants.Pools, pool)
}

// isQueued reports whether a claim is in the queue of the scene's pool.
func (s *scene) isQueued(name string) bool {
	return s.queue.poolQueues.IsQueued(claim(name), s.pool.Key)
}

// served notes each turn that Run serves, until the test ends.
func (s *scene) served() func() []string {
	turns := make(chan string, 100)
	s.queue.OnTurn("IPClaim", func(h ipam.Holder) { turns <- h.Name })
	go s.queue.Run(s.t.Context())
	return func() []string {
		synctest.Wait()
		var names []string
		for len(turns) > 0 {
			names = append(names, <-turns)
		}
		return names
	}
}

// woken empties the queue of pools to reconcile, and returns them sorted by name.
func (s *scene) woken() []ipam.PoolKey {
	var keys []ipam.PoolKey
	for s.queue.wake.Len() > 0 {
		key, _ := s.queue.wake.Get()
		s.queue.wake.Done(key)
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b ipam.PoolKey) int { return cmp.Compare(a.Name, b.Name) })
	return keys
}
