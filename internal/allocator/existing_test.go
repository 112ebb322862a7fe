package allocator

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestPoolRightsAreCheckedWhenPoolAppears records an IPAddress that was made before
// its pool.
func TestPoolRightsAreCheckedWhenPoolAppears(t *testing.T) {
	key := ipam.PoolNamed("late")
	private := &ipam.Pool{Key: key, Visibility: ipam.VisibilityConsumer, Project: "blue"}
	own := &ipam.Pool{Key: key, Visibility: ipam.VisibilityConsumer, Project: "red"}
	for name, test := range map[string]struct {
		pool                   *ipam.Pool
		released, stillUnknown bool
	}{
		"the pool has not come":        {nil, false, true},
		"the namespace may use it":     {&ipam.Pool{Key: key, Visibility: ipam.VisibilityShared}, false, false},
		"it is the namespace's":        {own, false, false},
		"the namespace may not use it": {private, true, false},
	} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			claim := ipam.Name{Namespace: "red", Name: "a"}
			record := api.stores(t, ipam.Record{
				Name: ipam.Name{Namespace: "red", Name: "a-12345678"}, Block: netip.MustParsePrefix("10.0.0.1/32"), Pool: key,
				Holder: convert.HolderOfAddressClaim(claim), Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound, PoolUnknown: true,
			})
			a.Catalog.SetProject("red", "red")
			if test.pool != nil {
				a.Catalog.SetPool(*test.pool)
			}
			recorded := recordHistory(a)
			got, err := a.JudgeUse(t.Context(), ipam.Request{Claim: claim}, record)
			var entries []string
			if test.released {
				entries = []string{"Released 10.0.0.1/32 NotAllowed"}
			}
			expectRecorded(t, recorded, entries...)
			if want := test.stillUnknown; got.PoolUnknown != want {
				t.Errorf("the record is returned as %+v, want it marked: %t", got, want)
			}
			missing, ok := errors.AsType[*ipam.MissingError](err)
			if wanted := test.released || test.stillUnknown; ok != wanted || ok && missing.Reason != v1alpha1.ReasonPoolNotFound || !ok && err != nil {
				t.Errorf("got error %v, want PoolNotFound: %t", err, wanted)
			}
			stored := api.stored(record.Name)
			if (stored == nil) != test.released {
				t.Fatalf("stored is %+v, want it released: %t", stored, test.released)
			}
			if !test.released && (stored.Annotations[v1alpha1.AnnotationPoolUnknown] != "") != test.stillUnknown {
				t.Errorf("stored with %v, want it marked: %t", stored.Annotations, test.stillUnknown)
			}
		})
	}
}

// TestUnclaimedAddressesAreBounded lets a namespace send IPAddresses that are never stored,
// of a pool that is not known.
func TestUnclaimedAddressesAreBounded(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		a.UnclaimedLimit = 3
		a.Catalog.SetProject("greedy", "greedy")
		a.Catalog.SetProject("modest", "modest")
		enter := func(namespace string, n int) (ipam.Record, error) {
			claim := ipam.Name{Namespace: namespace, Name: fmt.Sprint("a-", n)}
			return a.RecordAddress(t.Context(), claim, ipam.PoolNamed("unknown"), Address{Address: fmt.Sprintf("10.9.0.%d", n)})
		}
		for n := range a.UnclaimedLimit {
			if record, err := enter("greedy", n); err != nil || !record.PoolUnknown {
				t.Fatalf("address %d: got %+v, %v; want it recorded, and marked", n, record, err)
			}
		}
		if _, err := enter("greedy", a.UnclaimedLimit); !errors.Is(err, ipam.ErrTooManyUnclaimed) {
			t.Errorf("beyond the bound: got %v, want %v", err, ipam.ErrTooManyUnclaimed)
		}
		if _, err := enter("modest", 100); err != nil {
			t.Errorf("another namespace: %v", err)
		}
	})
}

// TestAddressesCountTowardLimits records IPAddresses that the operator did not make: of a class that
// allows a project one, and of a pool that comes after them and allows one too.
func TestAddressesCountTowardLimits(t *testing.T) {
	late := ipam.PoolNamed("late")
	enter := func(t *testing.T, a *Allocator, class string, n int) (ipam.Record, error) {
		a.Catalog.SetProject("red", "red")
		return a.RecordAddress(t.Context(), ipam.Name{Namespace: "red", Name: fmt.Sprint("a-", n)}, late, Address{Class: class, Address: fmt.Sprintf("10.9.0.%d", n)})
	}
	expectLimit := func(t *testing.T, err error, want string) {
		t.Helper()
		if limit, ok := errors.AsType[*ipam.LimitError](err); !ok || limit.Subject != want {
			t.Errorf("got %v, want that the limit of %s is reached", err, want)
		}
	}
	runNamedOnReplica(t, "of the class", func(t *testing.T, a *Allocator, _ *steady) {
		a.Catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "hosts", Limit: oneBlock}})
		if record, err := enter(t, a, "hosts", 0); err != nil || record.Class != "hosts" {
			t.Fatalf("got %+v, %v; want it recorded for the class", record, err)
		}
		_, err := enter(t, a, "hosts", 1)
		expectLimit(t, err, "IPClass hosts")
	})
	runNamedOnReplica(t, "of a pool that comes later", func(t *testing.T, a *Allocator, api *steady) {
		var last ipam.Record
		for n := range 2 {
			var err error
			last, err = enter(t, a, "", n)
			must(t, err)
		}
		pool := ipam.Pool{Key: late, Home: parent().Home, CIDR: netip.MustParsePrefix("10.9.0.0/24"), Family: ipam.IPv4, Visibility: ipam.VisibilityShared, Limit: oneBlock}
		a.Catalog.SetPool(pool)
		a.Ledger.Describe(pool)
		_, err := a.JudgeUse(t.Context(), ipam.Request{Claim: ipam.Name{Namespace: "red", Name: "a-1"}}, last)
		expectLimit(t, err, "pool late")
		if stored := api.server.records(); len(stored) != 1 {
			t.Errorf("stored are %d records, want one", len(stored))
		}
	})
}

func TestPoolAllowsHoldersByVisibility(t *testing.T) {
	a := newUnsyncedAllocator()
	a.Catalog.SetProject("red", "red")
	blue := ipam.Pool{Key: ipam.PoolNamed("blue"), Visibility: ipam.VisibilityConsumer, Project: "blue"}
	red := ipam.Pool{Key: ipam.PoolNamed("red"), Visibility: ipam.VisibilityConsumer, Project: "red"}
	a.Catalog.SetPool(blue)
	a.Catalog.SetPool(red)
	notFound := isMissing(v1alpha1.ReasonPoolNotFound, `there is no IPPool "blue" that this namespace may use`)
	for name, c := range map[string]struct {
		namespace string
		pool      ipam.PoolKey
		known     bool
		err       func(error) bool
	}{
		"its own":                          {"red", red.Key, true, isNil},
		"another project's":                {"red", blue.Key, true, notFound},
		"of a pool that is not known":      {"red", ipam.PoolNamed("none"), false, isNil},
		"of a namespace that is not known": {"new", red.Key, false, func(err error) bool { return errors.Is(err, ipam.ErrNotSynced) }},
	} {
		isKnown, err := a.Catalog.MayHold(ipam.Request{Claim: ipam.Name{Namespace: c.namespace, Name: "a"}}, c.pool)
		if isKnown != c.known || !c.err(err) {
			t.Errorf("%s: the pool is known: %t, %v; want %t", name, isKnown, err, c.known)
		}
	}
}

func isNil(err error) bool { return err == nil }

func TestUnjudgedRecordStaysWithError(t *testing.T) {
	for name, c := range map[string]struct {
		namespace string // of the record
		fails     map[string]error
		want      error
	}{
		"the namespace is not known":      {"ns", nil, ipam.ErrNotSynced},
		"its release fails":               {"red", map[string]error{"delete": errCut}, errCut},
		"the mark cannot be taken off it": {"blue", map[string]error{"patch": errCut}, errCut},
	} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			a.Catalog.SetProject("red", "red")
			a.Catalog.SetProject("blue", "blue")
			pool := parent()
			pool.Visibility, pool.Project = ipam.VisibilityConsumer, "blue"
			a.Catalog.SetPool(pool)
			record := heldBlock("x", "10.0.0.0/32")
			record.Name.Namespace, record.Holder.Namespace, record.PoolUnknown = c.namespace, c.namespace, true
			record = api.stores(t, record)
			api.calls(c.fails)
			if _, err := a.JudgeUse(t.Context(), ipam.Request{Claim: ipam.Name{Namespace: c.namespace, Name: "x"}}, record); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if stored := api.stored(record.Name); stored == nil || !stored.DeletionTimestamp.IsZero() {
				t.Errorf("stored is %+v", stored)
			}
		})
	}
}

func TestTermsOfAddressFollowClass(t *testing.T) {
	a := newUnsyncedAllocator()
	a.Catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "kept", Reclaim: ipam.ReclaimRetain}})
	for class, want := range map[string]ipam.Reclaim{"kept": ipam.ReclaimRetain, "none": ipam.ReclaimDelete, "": ipam.ReclaimDelete} {
		terms := a.Catalog.TermsOfAddress(netip.MustParseAddr("10.0.0.1"), class)
		if terms.Reclaim != want || terms.Class != class || terms.Block.String() != "10.0.0.1/32" || terms.Length != 32 {
			t.Errorf("class %q: %+v, want reclaim policy %s", class, terms, want)
		}
	}
}

func TestExistingBlockIsRecorded(t *testing.T) {
	child, ranges := ipam.PoolNamed("child"), rangesOf("10.9.0.0/30")
	inCluster := ranges
	inCluster.Key = ipam.PoolKey{Kind: ipam.PoolKindGlobalInClusterIPPool, Name: "r"}
	for name, c := range map[string]struct {
		pool  ipam.PoolKey
		block string
		is    func(error) bool
	}{
		"in the pool":                      {parent().Key, "10.0.0.7/32", isNil},
		"outside of it":                    {parent().Key, "10.7.0.0/32", isA[*ipam.PolicyError]},
		"on another's block":               {parent().Key, "10.0.9.9/32", isA[*ipam.TakenError]},
		"of a child pool without CIDR yet": {child, "10.0.0.7/32", isA[*ipam.MissingError]},
		"outside of the ranges of a pool":  {ranges.Key, "10.9.0.9/32", isA[*ipam.PolicyError]},
		"outside of the in-cluster ranges": {inCluster.Key, "10.9.0.9/32", func(err error) bool { return !isA[*ipam.PolicyError](err) }},
		"outside of the in-cluster subnet": {inCluster.Key, "10.0.0.7/32", isA[*ipam.PolicyError]},
	} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			a.Catalog.SetPool(parent())
			a.Catalog.SetPool(ranges)
			a.Catalog.SetPool(inCluster)
			a.Catalog.SetPool(ipam.Pool{Key: child, Home: parent().Key, Length: 24})
			api.stores(t, heldBlock("other", "10.0.9.0/24"))
			order := claimOrder("x", 32)
			order.Terms.Block = netip.MustParsePrefix(c.block)
			record, err := a.RecordExisting(t.Context(), order, c.pool)
			if !c.is(err) {
				t.Errorf("got %+v, %v", record, err)
			}
		})
	}
	if _, err := newUnsyncedAllocator().RecordExisting(t.Context(), claimOrder("x", 32), parent().Key); !errors.Is(err, ipam.ErrNotSynced) {
		t.Errorf("before everything was seen: got %v, want %v", err, ipam.ErrNotSynced)
	}
}

// TestRecordStatesAllocatedGateway covers each way to a record. The gateway of the pool is
// 10.0.0.1.
func TestRecordStatesAllocatedGateway(t *testing.T) {
	networked := parent()
	networked.Network = &ipam.Network{Length: 16, Gateway: netip.MustParseAddr("10.0.0.1")}
	order := func(length int) Order { return orderFromPools(claimOrder("x", length), networked) }
	inUse := func(gateway string) Order {
		o := order(32)
		o.Terms.Block, o.Gateway = netip.MustParsePrefix("10.0.0.9/32"), convert.GatewayGiven(gateway)
		return o
	}
	retained := heldBlock("x", "10.0.0.7/32")
	retained.Name.Name, retained.State, retained.Reclaim, retained.Gateway = "x-former", ipam.StateRetained, ipam.ReclaimRetain, netip.MustParseAddr("10.0.0.77")
	for name, c := range map[string]struct {
		before ipam.Record
		act    func(*testing.T, *Allocator) (ipam.Record, error)
		want   string
	}{
		"an address": {act: func(t *testing.T, a *Allocator) (ipam.Record, error) { return a.Allocate(t.Context(), order(32)) }, want: "10.0.0.1"},
		"a block":    {act: func(t *testing.T, a *Allocator) (ipam.Record, error) { return a.Allocate(t.Context(), order(30)) }},
		"an address that is in use": {act: func(t *testing.T, a *Allocator) (ipam.Record, error) {
			return a.RecordExisting(t.Context(), inUse("10.0.0.77"), networked.Key)
		}, want: "10.0.0.77"},
		"an address that is in use without gateway": {act: func(t *testing.T, a *Allocator) (ipam.Record, error) {
			return a.RecordExisting(t.Context(), inUse(""), networked.Key)
		}},
		"an IPAddress": {act: func(t *testing.T, a *Allocator) (ipam.Record, error) {
			return a.RecordAddress(t.Context(), ipam.Name{Namespace: "ns", Name: "y"}, networked.Key, Address{Address: "10.0.0.9", Gateway: "10.0.0.77"})
		}, want: "10.0.0.77"},
		"a retained address": {before: retained, act: func(t *testing.T, a *Allocator) (ipam.Record, error) { return a.Allocate(t.Context(), order(32)) }, want: "10.0.0.1"},
	} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			a.Catalog.SetPool(networked)
			a.Catalog.SetProject("ns", "")
			a.Ledger.Describe(networked)
			if c.before.Name.Name != "" {
				api.stores(t, c.before)
			}
			record, err := c.act(t, a)
			must(t, err)
			if got := api.stored(record.Name).Spec.Gateway; got != c.want || convert.GatewayGiven(got) != record.Gateway {
				t.Errorf("stored is the gateway %q, and returned %s; want %q", got, record.Gateway, c.want)
			}
		})
	}
}

func TestPreviewOfRetainedAddressHasCurrentGateway(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		networked := parent()
		networked.Network = &ipam.Network{Length: 16, Gateway: netip.MustParseAddr("10.0.0.1")}
		retained := heldBlock("x", "10.0.0.7/32")
		retained.State, retained.Reclaim, retained.Gateway = ipam.StateRetained, ipam.ReclaimRetain, netip.MustParseAddr("10.0.0.77")
		api.stores(t, retained)
		record, err := a.Preview(orderFromPools(claimOrder("x", 32), networked))
		if err != nil || record.Block != retained.Block || record.Gateway != networked.Network.Gateway {
			t.Errorf("got %s with the gateway %s, %v", record.Block, record.Gateway, err)
		}
	})
}

// TestTakeOverIsWrittenOnceForVersionOfHolder takes over a record twice.
func TestTakeOverIsWrittenOnceForVersionOfHolder(t *testing.T) {
	runNamedOnReplica(t, "twice", func(t *testing.T, a *Allocator, api *steady) {
		order := orderFromPools(claimOrder("x", 30), openSecondPool(a, api, t))
		order.HolderUID = "1"
		record, err := a.Allocate(t.Context(), order)
		must(t, err)
		for version, isWritten := range map[string]bool{"": true, "7": false} {
			order.HolderVersion = version
			first, err := a.takeOver(t.Context(), record, order)
			must(t, err)
			if record, err = a.takeOver(t.Context(), first, order); err != nil || (record.Version != first.Version) != isWritten {
				t.Errorf("for version %q of the holder: the record has version %s after %s, %v", version, record.Version, first.Version, err)
			}
		}
	})
}
