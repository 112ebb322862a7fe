package allocationgc

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
	fcache "k8s.io/client-go/tools/cache/testing"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// TestOnlyRecordsWithoutHolderAreReconciled shows some records to a new leader: a record with a
// holder costs no pass; a record without, and a record that is not merely held, do.
func TestOnlyRecordsWithoutHolderAreReconciled(t *testing.T) {
	view := ledger.New(ledger.Options{Clock: clock.RealClock{}, Silence: time.Minute})
	seen := make(chan struct{}, 10)
	view.Follow(func(ledger.Change) { seen <- struct{}{} })
	from := fcache.NewFakeControllerSource()
	for name, state := range map[string]ipam.State{"held": ipam.StateBound, "orphan": ipam.StateBound, "kept": ipam.StateRetained} {
		obj := convert.Allocation(recordNamed(name, state))
		obj.UID = types.UID(name)
		from.Add(obj)
	}
	go view.Run(t.Context(), from, &v1alpha1.IPAllocation{})
	for range 3 {
		<-seen
	}
	r := replica.New(replica.Options{Ledger: view})
	c := &Controller{
		Ledger: r.Ledger, Catalog: r.Catalog, Allocator: r.Allocator, Metrics: r.Metrics, History: r.History,
		judges: map[string]Judge{"Thing": func(_ context.Context, _ client.Reader, r ipam.Record) (bool, error) {
			return r.Holder.Name != "orphan", nil
		}},
	}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	if err := c.records().Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	// They had no holder when they were reconciled; one has it now.
	c.sightings = map[ipam.Name]sighting{recordNamed("held", "").Name: {}, recordNamed("orphan", "").Name: {}}
	c.scan(t.Context(), q)
	if _, isUnheld := c.sightings[recordNamed("held", "").Name]; isUnheld || len(c.sightings) != 1 {
		t.Errorf("without holder are %v, want the orphan alone", c.sightings)
	}
	looked := map[string]bool{}
	for q.Len() > 0 {
		req, _ := q.Get()
		looked[req.Name] = true
	}
	if got := slices.Sorted(maps.Keys(looked)); !slices.Equal(got, []string{"kept", "orphan"}) {
		t.Errorf("%q are enqueued, want those without holder or not Bound", got)
	}
	if len(c.newRecords) != 0 {
		t.Errorf("%v are still news", c.newRecords)
	}
}

// TestNewRecordsAreScannedAfterDelay covers a leader, which exports the counts that it alone has
// from then on.
func TestNewRecordsAreScannedAfterDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := ledger.New(ledger.Options{Clock: clock.RealClock{}})
		r := replica.New(replica.Options{Ledger: view})
		c := &Controller{Ledger: r.Ledger, Catalog: r.Catalog, Allocator: r.Allocator, Metrics: r.Metrics, History: r.History}
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		c.newRecords = []ipam.Name{{Name: "gone"}}
		suite.Must(t, c.arrivals().Start(t.Context(), q))
		registry := prometheus.NewRegistry()
		registry.MustRegister(c.Metrics.Collectors()...)
		if n, err := testutil.GatherAndCount(registry, metrics.Unheld); n != 1 || err != nil {
			t.Errorf("%d time series of %s, %v; want 1", n, metrics.Unheld, err)
		}
		for _, want := range []int{0, 1} {
			synctest.Wait()
			if got := q.Len(); got != want {
				t.Errorf("%d records are enqueued, want %d", got, want)
			}
			<-time.After(arrivalInterval)
		}
	})
}

func recordNamed(name string, state ipam.State) ipam.Record {
	return ipam.Record{
		Name: ipam.Name{Namespace: "team", Name: name}, UID: name, Block: netip.MustParsePrefix("10.0.0.1/32"),
		Pool: ipam.PoolKey{Kind: ipam.PoolKindIPPool, Name: "hosts"}, Holder: ipam.Holder{Group: "g", Kind: "Thing", Namespace: "team", Name: name},
		Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, State: state,
	}
}
