package allocator

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
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
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			claim := ipam.Name{Namespace: "red", Name: "a"}
			obj := convert.Allocation(ipam.Record{
				Name: ipam.Name{Namespace: "red", Name: "a-12345678"}, UID: "uid", Block: netip.MustParsePrefix("10.0.0.1/32"), Pool: key,
				Holder: convert.HolderOfAddressClaim(claim), Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound, PoolUnknown: true,
			})
			k8s := fake.NewClientBuilder().WithScheme(scheme).WithObjects(obj).Build()
			if err := k8s.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
				t.Fatal(err)
			}
			record, invalid := convert.Record(obj)
			if invalid != nil {
				t.Fatal(invalid)
			}
			a := newAllocator(testOptions{Client: k8s, Ledger: ledger.New(ledger.Options{Clock: clock.RealClock{}})})
			a.catalog.SetProject("red", "red")
			if test.pool != nil {
				a.catalog.SetPool(*test.pool)
			}

			got, err := a.JudgeUse(t.Context(), ipam.Request{Claim: claim}, record)
			if want := test.stillUnknown; got.PoolUnknown != want {
				t.Errorf("the record is returned as %+v, want it marked: %t", got, want)
			}
			missing, ok := errors.AsType[*ipam.MissingError](err)
			if wanted := test.released || test.stillUnknown; ok != wanted || ok && missing.Reason != v1alpha1.ReasonPoolNotFound || !ok && err != nil {
				t.Errorf("got error %v, want PoolNotFound: %t", err, wanted)
			}
			err = k8s.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
			if gone := kubeutil.IsNotFound(err); gone != test.released {
				t.Fatalf("released: %t, want %t; %v", gone, test.released, err)
			}
			if _, marked := obj.Annotations[v1alpha1.AnnotationPoolUnknown]; !test.released && marked != test.stillUnknown {
				t.Errorf("marked: %t, want %t", marked, test.stillUnknown)
			}
		})
	}
}

// TestUnclaimedAddressesAreBounded lets a namespace send IPAddresses that are never stored,
// of a pool that is not known.
func TestUnclaimedAddressesAreBounded(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		a.limit = 3
		a.catalog.SetProject("greedy", "greedy")
		a.catalog.SetProject("modest", "modest")
		enter := func(namespace string, n int) (ipam.Record, error) {
			claim := ipam.Name{Namespace: namespace, Name: fmt.Sprint("a-", n)}
			return a.RecordAddress(t.Context(), claim, ipam.PoolNamed("unknown"), Address{Address: fmt.Sprintf("10.9.0.%d", n)})
		}
		for n := range a.limit {
			if record, err := enter("greedy", n); err != nil || !record.PoolUnknown {
				t.Fatalf("address %d: got %+v, %v; want it recorded, and marked", n, record, err)
			}
		}
		if _, err := enter("greedy", a.limit); !errors.Is(err, ipam.ErrTooManyUnclaimed) {
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
		a.catalog.SetProject("red", "red")
		return a.RecordAddress(t.Context(), ipam.Name{Namespace: "red", Name: fmt.Sprint("a-", n)}, late, Address{Class: class, Address: fmt.Sprintf("10.9.0.%d", n)})
	}
	expectLimit := func(t *testing.T, err error, want string) {
		t.Helper()
		if limit, ok := errors.AsType[*ipam.LimitError](err); !ok || limit.Subject != want {
			t.Errorf("got %v, want that the limit of %s is reached", err, want)
		}
	}
	t.Run("of the class", func(t *testing.T) {
		runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
			a.catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "hosts", Limit: oneBlock}})
			if record, err := enter(t, a, "hosts", 0); err != nil || record.Class != "hosts" {
				t.Fatalf("got %+v, %v; want it recorded for the class", record, err)
			}
			_, err := enter(t, a, "hosts", 1)
			expectLimit(t, err, "IPClass hosts")
		})
	})
	t.Run("of a pool that comes later", func(t *testing.T) {
		runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
			var last ipam.Record
			for n := range 2 {
				var err error
				if last, err = enter(t, a, "", n); err != nil {
					t.Fatal(err)
				}
			}
			pool := ipam.Pool{Key: late, Home: parent().Home, CIDR: netip.MustParsePrefix("10.9.0.0/24"), Family: ipam.IPv4, Visibility: ipam.VisibilityShared, Limit: oneBlock}
			a.catalog.SetPool(pool)
			a.ledger.Describe(pool)
			_, err := a.JudgeUse(t.Context(), ipam.Request{Claim: ipam.Name{Namespace: "red", Name: "a-1"}}, last)
			expectLimit(t, err, "pool late")
			if stored := api.server.records(); len(stored) != 1 {
				t.Errorf("stored are %d records, want one", len(stored))
			}
		})
	})
}

// TestPoolAllowsHoldersByVisibility judges once both the pool and the namespace's project are known.
func TestPoolAllowsHoldersByVisibility(t *testing.T) {
	a := newUnsyncedAllocator()
	a.catalog.SetProject("red", "red")
	blue := ipam.Pool{Key: ipam.PoolNamed("blue"), Visibility: ipam.VisibilityConsumer, Project: "blue"}
	red := ipam.Pool{Key: ipam.PoolNamed("red"), Visibility: ipam.VisibilityConsumer, Project: "red"}
	a.catalog.SetPool(blue)
	a.catalog.SetPool(red)
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
		isKnown, err := a.catalog.MayHold(ipam.Request{Claim: ipam.Name{Namespace: c.namespace, Name: "a"}}, c.pool)
		if isKnown != c.known || !c.err(err) {
			t.Errorf("%s: the pool is known: %t, %v; want %t", name, isKnown, err, c.known)
		}
	}
}

func isNil(err error) bool { return err == nil }

// TestUnjudgedRecordStaysWithError expects that the record stays, and that the error states why.
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
		t.Run(name, func(t *testing.T) {
			runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
				a.catalog.SetProject("red", "red")
				a.catalog.SetProject("blue", "blue")
				pool := parent()
				pool.Visibility, pool.Project = ipam.VisibilityConsumer, "blue"
				a.catalog.SetPool(pool)
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
		})
	}
}

// TestTermsOfAddressFollowClass covers a class that is known.
func TestTermsOfAddressFollowClass(t *testing.T) {
	a := newUnsyncedAllocator()
	a.catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "kept", Reclaim: ipam.ReclaimRetain}})
	for class, want := range map[string]ipam.Reclaim{"kept": ipam.ReclaimRetain, "none": ipam.ReclaimDelete, "": ipam.ReclaimDelete} {
		terms := a.catalog.TermsOfAddress(netip.MustParseAddr("10.0.0.1"), class)
		if terms.Reclaim != want || terms.Class != class || terms.Block.String() != "10.0.0.1/32" || terms.Length != 32 {
			t.Errorf("class %q: %+v, want reclaim policy %s", class, terms, want)
		}
	}
}

// TestExistingBlockIsRecorded covers a block that its holder has already, in any place.
func TestExistingBlockIsRecorded(t *testing.T) {
	child := ipam.PoolNamed("child")
	for name, c := range map[string]struct {
		pool  ipam.PoolKey
		block string
		is    func(error) bool
	}{
		"in the pool":                      {parent().Key, "10.0.0.7/32", isNil},
		"outside of it":                    {parent().Key, "10.7.0.0/32", isA[*ipam.PolicyError]},
		"on another's block":               {parent().Key, "10.0.9.9/32", isA[*ipam.TakenError]},
		"of a child pool without CIDR yet": {child, "10.0.0.7/32", isA[*ipam.MissingError]},
	} {
		t.Run(name, func(t *testing.T) {
			runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
				a.catalog.SetPool(parent())
				a.catalog.SetPool(ipam.Pool{Key: child, Home: parent().Key, Length: 24})
				api.stores(t, heldBlock("other", "10.0.9.0/24"))
				order := claimOrder("x", 32)
				order.Terms.Block = netip.MustParsePrefix(c.block)
				record, err := a.RecordExisting(t.Context(), order, c.pool)
				if !c.is(err) {
					t.Errorf("got %+v, %v", record, err)
				}
			})
		})
	}
	if _, err := newUnsyncedAllocator().RecordExisting(t.Context(), claimOrder("x", 32), parent().Key); !errors.Is(err, ipam.ErrNotSynced) {
		t.Errorf("before everything was seen: got %v, want %v", err, ipam.ErrNotSynced)
	}
}
