package allocator

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// due is the time at which a kept record is released.
var due = time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)

// TestTakeoverNeedsConfirmedRecord retains a record for a claim's name, alone, and after another
// record was made on its block: the maker of that record saw it confirmed.
func TestTakeoverNeedsConfirmedRecord(t *testing.T) {
	for name, rival := range map[string]string{
		"nothing else is on its block": "",
		"something else is":            "10.0.0.0/30",
	} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			if rival != "" {
				api.creates(t, heldBlock("y", rival))
			}
			order := claimOrder("x", 28)
			kept := order.recordOf(parent(), netip.MustParsePrefix("10.0.0.0/28"))
			kept.Name.Name, kept.State, kept.Reclaim = "x-former", ipam.StateRetained, ipam.ReclaimRetain
			api.stores(t, kept)
			if record, ok := a.retainedRecord(order); ok != (rival == "") {
				t.Errorf("it may take %v over: %t", record, ok)
			}
		})
	}
}

// claimOrder returns the order for a claim of a length that does not exist yet.
func claimOrder(claim string, length int) Order {
	order := Order{Holder: convert.HolderOfClaim(ipam.Name{Namespace: "ns", Name: claim})}
	order.Record = newAttempt(order.Holder)
	order.Terms = ipam.Terms{Family: ipam.IPv4, Length: length, Reclaim: ipam.ReclaimDelete}
	order.Pools = []ipam.Pool{parent()}
	return order
}

func TestTakeoverNeedsMatchingRequest(t *testing.T) {
	type change = func(*ipam.Record, *Order)
	for name, c := range map[string]struct {
		change change
		want   bool
	}{
		"nothing":               {func(*ipam.Record, *Order) {}, true},
		"the length":            {func(_ *ipam.Record, o *Order) { o.Terms.Length = 27 }, false},
		"the pool":              {func(_ *ipam.Record, o *Order) { o.Pools[0].Key = ipam.PoolNamed("other") }, false},
		"one of several pools":  {func(_ *ipam.Record, o *Order) { o.Pools = []ipam.Pool{{Key: ipam.PoolNamed("other")}, parent()} }, true},
		"the block":             {func(_ *ipam.Record, o *Order) { o.Terms.Block = netip.MustParsePrefix("10.0.0.16/28") }, false},
		"that it is asked for":  {func(_ *ipam.Record, o *Order) { o.Terms.Block = netip.MustParsePrefix("10.0.0.0/28") }, true},
		"the name":              {func(_ *ipam.Record, o *Order) { o.Holder.Name = "y" }, false},
		"the namespace":         {func(_ *ipam.Record, o *Order) { o.Holder.Namespace = "other" }, false},
		"it is bound":           {func(r *ipam.Record, _ *Order) { r.State = ipam.StateBound }, false},
		"it cools down":         {func(r *ipam.Record, _ *Order) { r.State, r.ReleaseAfter = ipam.StateCooling, due }, false},
		"it was taken over":     {func(r *ipam.Record, _ *Order) { r.State, r.ReleaseAfter = ipam.StateBound, due }, true},
		"it was, and is stored": {func(r *ipam.Record, _ *Order) { r.State, r.ReleaseAfter, r.HolderUID = ipam.StateBound, due, "uid" }, false},
		"under its key":         {func(r *ipam.Record, o *Order) { r.Sticky, o.Sticky, o.Holder.Name = "k", "k", "y" }, true},
		"under another key":     {func(r *ipam.Record, o *Order) { r.Sticky, o.Sticky, o.Holder.Name = "k", "l", "y" }, false},
		"taken over under its key": {func(r *ipam.Record, o *Order) {
			r.State, r.ReleaseAfter, r.Sticky, o.Sticky, o.Holder.Name = ipam.StateBound, due, "k", "k", "y"
		}, false},
	} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			order := claimOrder("x", 28)
			kept := order.recordOf(parent(), netip.MustParsePrefix("10.0.0.0/28"))
			kept.Name.Name, kept.State, kept.Reclaim = "x-former", ipam.StateRetained, ipam.ReclaimRetain
			c.change(&kept, &order)
			api.stores(t, kept)
			if record, ok := a.retainedRecord(order); ok != c.want {
				t.Errorf("it may take %v over: %t, want %t", record, ok, c.want)
			}
		})
	}
}

// TestSecondTakeoverInvalidatesFirst lets two attempts to create one claim take its record over.
// The first is given up then, in the state in which it was made: the second stays.
func TestSecondTakeoverInvalidatesFirst(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		order := claimOrder("x", 28)
		kept := order.recordOf(parent(), netip.MustParsePrefix("10.0.0.0/28"))
		kept.Name.Name, kept.State, kept.Reclaim, kept.ReleaseAfter = "x-former", ipam.StateRetained, ipam.ReclaimRetain, due
		api.stores(t, kept)
		first, ok := a.retake(t.Context(), order)
		if !ok {
			t.Fatal("the retained record was not taken over")
		}
		synctest.Wait()
		if _, ok := a.retake(t.Context(), order); !ok {
			t.Fatal("the record was not taken over a second time")
		}
		synctest.Wait()
		if err := a.Release(t.Context(), first); !apierrors.IsConflict(err) {
			t.Errorf("the release of the first attempt: got %v, want a conflict", err)
		}
	})
}

// TestTakeoverPrefersLastRecordOfKey keeps two records under one key: the record that is kept longest was
// given back last; but the claim's own record comes first.
func TestTakeoverPrefersLastRecordOfKey(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		order := claimOrder("x", 28)
		order.Sticky = "k"
		for i, name := range []string{"a", "b", "c"} {
			kept := claimOrder(name, 28).recordOf(parent(), netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/28", 16*i)))
			kept.Name.Name, kept.State, kept.Reclaim, kept.Sticky = name+"-former", ipam.StateRetained, ipam.ReclaimRetain, "k"
			kept.ReleaseAfter = time.Date(2040, 1, 1, []int{1, 3, 2}[i], 0, 0, 0, time.UTC)
			api.creates(t, kept)
		}
		synctest.Wait()
		if record, ok := a.retainedRecord(order); !ok || record.Name.Name != "b-former" {
			t.Errorf("it may take %v over, %t; want that of b", record.Name, ok)
		}
		order.Holder.Name = "a"
		if record, ok := a.retainedRecord(order); !ok || record.Name.Name != "a-former" {
			t.Errorf("a may take %v over, %t; want its own", record.Name, ok)
		}
	})
}

// TestClaimWaitsForRecordAboutToBeRetained shows the deletion of the former claim, and
// settles its record after half of that time, or not at all.
func TestClaimWaitsForRecordAboutToBeRetained(t *testing.T) {
	for name, settled := range map[string]bool{"it is retained in time": true, "it is not": false} {
		t.Run(name, func(t *testing.T) {
			wait := map[bool]time.Duration{true: releaseTimeout / 2, false: releaseTimeout}[settled]
			runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
				order := claimOrder("x", 28)
				former := order.recordOf(parent(), netip.MustParsePrefix("10.0.0.0/28"))
				former.Name.Name, former.Reclaim, former.HolderUID = "x-former", ipam.ReclaimRetain, "gone"
				api.stores(t, former)
				a.Ledger.MarkLeaving(former.Name)
				if settled {
					go func() {
						time.Sleep(wait) // of the time in the bubble
						stored := api.server.records()[0]
						stored.Spec.State = v1alpha1.AllocationRetained
						api.server.mu.Lock()
						defer api.server.mu.Unlock()
						api.server.write(watch.Modified, &stored)
					}()
				}
				began := time.Now()
				if record, ok := a.retake(t.Context(), order); ok != settled || ok && record.Name != former.Name {
					t.Errorf("it took %v over: %t, want %t", record.Name, ok, settled)
				}
				if waited := time.Since(began); waited != wait {
					t.Errorf("it waited for %s, want %s", waited, wait)
				}
				synctest.Wait()
			})
		})
	}
}

// TestClaimWaitsOnlyForRetainableRecord covers records that are released otherwise, which
// is no loss, and records that stay, which are not available.
func TestClaimWaitsOnlyForRetainableRecord(t *testing.T) {
	for name, c := range map[string]struct {
		state   ipam.State
		reclaim ipam.Reclaim
		sticky  string
		leaving bool
		edit    func(o *Order, former *ipam.Record)
		waits   bool
	}{
		"its policy is Retain":           {ipam.StateBound, ipam.ReclaimRetain, "", true, nil, true},
		"it has a sticky key":            {ipam.StateBound, ipam.ReclaimDelete, "k", true, nil, true},
		"it is released":                 {ipam.StateBound, ipam.ReclaimDelete, "", true, nil, false},
		"its claim stays":                {ipam.StateBound, ipam.ReclaimRetain, "", false, nil, false},
		"it has a key, its claim stays":  {ipam.StateBound, ipam.ReclaimDelete, "k", false, nil, false},
		"it is released, its own stays":  {ipam.StateBound, ipam.ReclaimDelete, "", false, nil, false},
		"it cools down, with the policy": {ipam.StateCooling, ipam.ReclaimRetain, "", true, nil, false},
		"the claim's UID is another":     {ipam.StateBound, ipam.ReclaimRetain, "", true, func(o *Order, _ *ipam.Record) { o.HolderUID = "next" }, true},
		"it is the claim's own":          {ipam.StateBound, ipam.ReclaimRetain, "", true, func(o *Order, _ *ipam.Record) { o.HolderUID = "gone" }, false},
		"it was never stamped":           {ipam.StateBound, ipam.ReclaimRetain, "", true, func(_ *Order, former *ipam.Record) { former.HolderUID = "" }, true},
		"it has another length":          {ipam.StateBound, ipam.ReclaimRetain, "", true, func(o *Order, _ *ipam.Record) { o.Terms.Length = 27 }, false},
	} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			order := claimOrder("x", 28)
			former := order.recordOf(parent(), netip.MustParsePrefix("10.0.0.0/28"))
			former.Name.Name, former.HolderUID = "x-former", "gone"
			former.State, former.Reclaim, former.Sticky = c.state, c.reclaim, c.sticky
			if c.edit != nil {
				c.edit(&order, &former)
			}
			former = api.stores(t, former)
			if c.leaving {
				a.Ledger.MarkLeaving(former.Name)
			}
			began := time.Now()
			a.awaitRetained(t.Context(), order)
			if waited := time.Since(began) > 0; waited != c.waits {
				t.Errorf("it waits: %t, want %t", waited, c.waits)
			}
		})
	}
}
