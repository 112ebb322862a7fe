package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
)

func claimHolder(name string) ipam.Holder {
	return convert.HolderOfClaim(ipam.Name{Namespace: "a", Name: name})
}

func TestPoolDeletionRefusalNamesHolders(t *testing.T) {
	due := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	record := ipam.Record{Name: ipam.Name{Namespace: "a", Name: "x-abc"}, Holder: claimHolder("x"), State: ipam.StateRetained}
	retained, ending, cooling, unclaimed := record, record, record, record
	ending.ReleaseAfter, cooling.ReleaseAfter, cooling.State, unclaimed.State = due, due, ipam.StateCooling, ipam.StateBound
	var rows []messages.Row
	for name, tc := range map[string]struct {
		use  use
		want string
	}{
		"one claim":                  {use{liveHolders: []ipam.Holder{claimHolder("b")}}, "pool p is in use by 1 allocation (IPClaim a/b): delete it first"},
		"more than are named":        {use{liveHolders: []ipam.Holder{claimHolder("b"), convert.HolderOfPool(ipam.PoolNamed("c"))}, moreCount: 4}, "pool p is in use by 6 allocations (IPClaim a/b, IPPool c, and 4 more): delete them first"},
		"retained for ever":          {use{keptReasons: []string{keptReason(retained)}}, "pool p is in use by 1 allocation: IPAllocation a/x-abc is retained: delete it to release the block"},
		"retained for a time":        {use{keptReasons: []string{keptReason(ending)}}, "pool p is in use by 1 allocation: IPAllocation a/x-abc is retained until 2026-03-04T05:06:07Z: delete it to release the block"},
		"cooling down":               {use{keptReasons: []string{keptReason(cooling)}}, "pool p is in use by 1 allocation: IPAllocation a/x-abc is cooling down: wait until 2026-03-04T05:06:07Z, when the block is released"},
		"unclaimed, and others":      {use{keptReasons: []string{keptReason(unclaimed)}, moreCount: 2}, "pool p is in use by 3 allocations: IPAllocation a/x-abc is not claimed: wait until the block is released after the grace period for orphans, unless IPClaim a/x claims it; and 2 more"},
		"a claim and a retained one": {use{liveHolders: []ipam.Holder{claimHolder("b")}, keptReasons: []string{keptReason(retained)}}, "pool p is in use by 2 allocations (IPClaim a/b): delete it first; IPAllocation a/x-abc is retained: delete it to release the block"},
	} {
		t.Run(name, func(t *testing.T) {
			want := `Operation cannot be fulfilled on ippools.ipam.cadastre.dev "p": ` + tc.want
			if got := (subject{kind: "IPPool", name: "p"}).inUse(tc.use).Error(); got != want {
				t.Errorf("\ngot:  %s\nwant: %s", got, want)
			}
			rows = append(rows, messages.Row{Object: "IPPool", On: "delete", Answer: "409 Conflict", Value: "pool p", Message: tc.want})
		})
	}
	messages.Golden(t, rows)
}

func TestTerminatingHolderDoesNotKeepPool(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	going := metav1.ObjectMeta{Name: "going", DeletionTimestamp: new(metav1.Now()), Finalizers: []string{v1alpha1.FinalizerPool}}
	live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&v1alpha1.IPPool{ObjectMeta: going}, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "there"}},
		&v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "there"}},
	).Build()
	pool := func(name string) ipam.Holder { return convert.HolderOfPool(ipam.PoolNamed(name)) }
	bound := func(h ipam.Holder) ipam.Record {
		return ipam.Record{Holder: h, State: ipam.StateBound, Reclaim: ipam.ReclaimDelete}
	}
	retain, sticky, retained := bound(claimHolder("gone")), bound(claimHolder("gone")), bound(claimHolder("gone"))
	retain.Reclaim, sticky.Sticky, retained.State = ipam.ReclaimRetain, "key", ipam.StateRetained
	releasing := bound(pool("gone"))
	releasing.State = ipam.StateReleasing
	for name, tc := range map[string]struct {
		occupant ledger.Occupant
		want     bool
	}{
		"a child that exists":              {ledger.Occupant{Record: bound(pool("there")), Claimed: true}, false},
		"a child that is being deleted":    {ledger.Occupant{Record: bound(pool("going")), Claimed: true}, true},
		"a child that is gone":             {ledger.Occupant{Record: bound(pool("gone")), Claimed: true}, true},
		"a child whose record is released": {ledger.Occupant{Record: releasing, Claimed: true}, true},
		"a claim that exists":              {ledger.Occupant{Record: bound(claimHolder("there")), Claimed: true}, false},
		"a claim that is gone":             {ledger.Occupant{Record: bound(claimHolder("gone")), Claimed: true}, true},
		"a claim that is gone, to be kept": {ledger.Occupant{Record: retain, Claimed: true}, false},
		"a claim that is gone, with a key": {ledger.Occupant{Record: sticky, Claimed: true}, false},
		"a block that is retained":         {ledger.Occupant{Record: retained, Claimed: true}, false},
		"a claim that can be on its way":   {ledger.Occupant{Record: bound(claimHolder("gone"))}, false},
		"a holder of a foreign API":        {ledger.Occupant{Record: bound(ipam.Holder{Group: "x", Kind: "Y", Name: "gone"}), Claimed: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := areGoing(t.Context(), liveGoingCheck(live), []ledger.Occupant{tc.occupant})
			if err != nil || got[0] != tc.want {
				t.Errorf("got %v, %v, want %t", got, err, tc.want)
			}
		})
	}
}

func TestPoolDeletionRefusalCountsUnnamedHolders(t *testing.T) {
	err := subject{kind: "IPPool", name: "p"}.inUse(use{liveHolders: []ipam.Holder{claimHolder("a"), claimHolder("b")}, moreCount: 1})
	if want := "pool p is in use by 3 allocations (IPClaim a/a, IPClaim a/b, and 1 more): delete them first"; !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestPoolDeletionRefusalCountsAllHolders(t *testing.T) {
	s := newStage(t)
	for i := range maxOccupants + 6 {
		record := claimRecord("team", fmt.Sprint("c", i), fmt.Sprintf("10.0.1.%d/32", i))
		if i == 0 {
			record.State, record.Reclaim = ipam.StateRetained, ipam.ReclaimRetain
		}
		s.record(t, record)
	}
	check := func(when string, live, kept, more int) {
		t.Helper()
		got, err := useOf(t.Context(), liveGoingCheck(s.store), s.Ledger, ipam.PoolNamed("p"))
		if err != nil || len(got.liveHolders) != live || len(got.keptReasons) != kept || got.moreCount != more {
			t.Errorf("%s it is used by %+v (%v)", when, got, err)
		}
	}
	check("while all claims but a retained one are gone", 0, 1, 6)
	for i := range 3 {
		must(t, s.store.Create(t.Context(), &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprint("c", i+10)}}))
	}
	check("while three claims exist", 2, 1, maxOccupants+6-12)
}

// ledgerWithClaims returns a view with records of so many claims in the pool p.
func ledgerWithClaims(claims int) *ledger.Ledger {
	view := ledger.New(ledger.Options{})
	var records []ipam.Record
	for i := range claims {
		record := claimRecord("team", fmt.Sprint("c", i), fmt.Sprintf("10.0.1.%d/32", i))
		record.UID = record.Name.Name
		records = append(records, record)
	}
	view.Load(records, nil)
	return view
}

func TestPoolDeletionReadsFewHoldersAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		holders, going int // the first ones are going
		reads          int32
		rounds         time.Duration
		live, more     int
	}{
		"nothing holds it":            {0, 0, 0, 0, 0, 0},
		"all exist":                   {70, 0, 3, 1, 3, 67},
		"the first two are going":     {70, 2, 5, 2, 3, 65},
		"all are going":               {9, 9, 9, 3, 0, 0},
		"all are going, and are many": {70, 70, maxOccupants, 22, 0, 70 - maxOccupants},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reads, now, most atomic.Int32
				going := func(_ context.Context, h ipam.Holder) (bool, error) {
					reads.Add(1)
					most.Store(max(most.Load(), now.Add(1)))
					<-time.After(time.Second)
					now.Add(-1)
					n, err := strconv.Atoi(h.Name[1:])
					return n < tc.going, err
				}
				began := time.Now()
				u, err := useOf(t.Context(), going, ledgerWithClaims(tc.holders), ipam.PoolNamed("p"))
				if err != nil || len(u.liveHolders) != tc.live || u.moreCount != tc.more {
					t.Errorf("it is used by %+v, %v", u, err)
				}
				if took := time.Since(began) / time.Second; reads.Load() != tc.reads || took != tc.rounds || most.Load() > maxListedHolders {
					t.Errorf("%d are read in %d rounds, %d at a time; want %d in %d", reads.Load(), took, most.Load(), tc.reads, tc.rounds)
				}
			})
		})
	}
}

func TestPoolDeletionStopsReadingAtError(t *testing.T) {
	broken := errors.New("no answer")
	var reads atomic.Int32
	going := func(ctx context.Context, h ipam.Holder) (bool, error) {
		reads.Add(1)
		if h.Name == "c1" {
			return false, broken
		}
		<-ctx.Done() // the others are not awaited
		return false, ctx.Err()
	}
	if _, err := useOf(t.Context(), going, ledgerWithClaims(70), ipam.PoolNamed("p")); !errors.Is(err, broken) || !strings.Contains(err.Error(), "reading IPClaim team/c1") || reads.Load() > maxListedHolders {
		t.Errorf("after %d reads: %v", reads.Load(), err)
	}
}

// TestDryRunOfDeletionReadsNothing uses neither a client to read with nor a request that can wait.
func TestDryRunOfDeletionReadsNothing(t *testing.T) {
	view := ledgerWithClaims(1)
	r := replica.New(replica.Options{Ledger: view})
	t.Cleanup(r.Allocator.Close)
	shared := &services{Options: Options{Ledger: r.Ledger, Catalog: r.Catalog}}
	refused := func(when string, want bool) {
		t.Helper()
		if err := shared.deletePool(t.Context(), true, build.Pool("p").CIDR("10.0.0.0/16").Obj()); apierrors.IsConflict(err) != want || err != nil != want {
			t.Errorf("%s: %v", when, err)
		}
	}
	refused("while a claim holds a block", true)
	view.MarkLeaving(claimRecord("team", "c0", "10.0.1.0/32").Name)
	refused("while that claim is being deleted", false)
	child := ipam.Pool{Key: ipam.PoolNamed("child"), Home: ipam.PoolNamed("p"), CIDR: netip.MustParsePrefix("10.0.2.0/24"), Family: ipam.IPv4}
	record := poolRecord(child)
	record.UID = "child"
	view.PutRecord(record)
	refused("while a child is not known", true)
	r.Catalog.SetPool(child)
	refused("while a child exists", true)
	child.Terminating = true
	r.Catalog.SetPool(child)
	refused("while that child is being deleted", false)
}
