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
	"github.com/cadastre-dev/cadastre/internal/absent"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// TestWhoMayUseAPoolIsJudgedWhenThePoolComes has a record of an IPAddress that was made
// before its pool.
func TestWhoMayUseAPoolIsJudgedWhenThePoolComes(t *testing.T) {
	key := ipam.PoolNamed("late")
	private := &ipam.Pool{Key: key, Visibility: ipam.Consumer, Project: "blue"}
	for name, test := range map[string]struct {
		pool                   *ipam.Pool
		released, stillUnknown bool
	}{
		"the pool has not come":        {nil, false, true},
		"the namespace may use it":     {&ipam.Pool{Key: key, Visibility: ipam.Shared}, false, false},
		"the namespace may not use it": {private, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			claim := ipam.Name{Namespace: "red", Name: "a"}
			obj := adapt.Allocation(ipam.Record{
				Name: ipam.Name{Namespace: "red", Name: "a-12345678"}, UID: "uid", Block: netip.MustParsePrefix("10.0.0.1/32"), Pool: key,
				Holder: HolderOfAddressClaim(claim), Purpose: ipam.ForClaim, Reclaim: ipam.Delete, State: ipam.Bound, PoolUnknown: true,
			})
			k8s := fake.NewClientBuilder().WithScheme(scheme).WithObjects(obj).Build()
			if err := k8s.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
				t.Fatal(err)
			}
			record, invalid := adapt.Record(obj)
			if invalid != nil {
				t.Fatal(invalid)
			}
			a := &Allocator{catalogue: NewCatalogue(""), client: k8s, ledger: ledger.New(ledger.Options{Clock: clock.RealClock{}})}
			a.catalogue.SetProject("red", "red")
			if test.pool != nil {
				a.catalogue.SetPool(*test.pool)
			}

			_, err := a.JudgeUse(t.Context(), ipam.Request{Claim: claim}, record)
			missing, ok := errors.AsType[*ipam.MissingError](err)
			if wanted := test.released || test.stillUnknown; ok != wanted || ok && missing.Reason != v1alpha1.ReasonPoolNotFound || !ok && err != nil {
				t.Errorf("got error %v, want PoolNotFound: %t", err, wanted)
			}
			err = k8s.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
			if gone := absent.Is(err); gone != test.released {
				t.Fatalf("released: %t, want %t; %v", gone, test.released, err)
			}
			if _, marked := obj.Annotations[v1alpha1.AnnotationPoolUnknown]; !test.released && marked != test.stillUnknown {
				t.Errorf("marked: %t, want %t", marked, test.stillUnknown)
			}
		})
	}
}

// TestAddressesThatNobodyClaimsAreBounded has a namespace send IPAddresses that are never
// stored, of a pool that is not known.
func TestAddressesThatNobodyClaimsAreBounded(t *testing.T) {
	onReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		a.limit = 3
		a.catalogue.SetProject("greedy", "greedy")
		a.catalogue.SetProject("modest", "modest")
		enter := func(namespace string, n int) (ipam.Record, error) {
			claim := ipam.Name{Namespace: namespace, Name: fmt.Sprint("a-", n)}
			return a.EnterAddress(t.Context(), claim, ipam.PoolNamed("unknown"), "", fmt.Sprintf("10.9.0.%d", n))
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

// TestAddressesCountForTheLimits has IPAddresses made by others than the operator: of a
// class, which allows a project one, and of a pool that comes after them, which does too.
func TestAddressesCountForTheLimits(t *testing.T) {
	late := ipam.PoolNamed("late")
	enter := func(t *testing.T, a *Allocator, class string, n int) (ipam.Record, error) {
		a.catalogue.SetProject("red", "red")
		return a.EnterAddress(t.Context(), ipam.Name{Namespace: "red", Name: fmt.Sprint("a-", n)}, late, class, fmt.Sprintf("10.9.0.%d", n))
	}
	expectLimit := func(t *testing.T, err error, want string) {
		t.Helper()
		if limit, ok := errors.AsType[*ipam.LimitError](err); !ok || limit.Of != want {
			t.Errorf("got %v, want that the limit of %s is reached", err, want)
		}
	}
	t.Run("of the class", func(t *testing.T) {
		onReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
			a.catalogue.SetClass(ClassEntry{Class: ipam.Class{Name: "hosts", Limit: oneBlock}})
			if record, err := enter(t, a, "hosts", 0); err != nil || record.Class != "hosts" {
				t.Fatalf("got %+v, %v; want it recorded for the class", record, err)
			}
			_, err := enter(t, a, "hosts", 1)
			expectLimit(t, err, "IPClass hosts")
		})
	})
	t.Run("of a pool that comes later", func(t *testing.T) {
		onReplica(t, func(t *testing.T, a *Allocator, over *steady) {
			var last ipam.Record
			for n := range 2 {
				var err error
				if last, err = enter(t, a, "", n); err != nil {
					t.Fatal(err)
				}
			}
			pool := ipam.Pool{Key: late, Home: parent().Home, CIDR: netip.MustParsePrefix("10.9.0.0/24"), Family: ipam.IPv4, Visibility: ipam.Shared, Limit: oneBlock}
			a.catalogue.SetPool(pool)
			a.ledger.Describe(pool)
			_, err := a.JudgeUse(t.Context(), ipam.Request{Claim: ipam.Name{Namespace: "red", Name: "a-1"}}, last)
			expectLimit(t, err, "pool late")
			if stored := over.server.records(); len(stored) != 1 {
				t.Errorf("stored are %d records, want one", len(stored))
			}
		})
	})
}
