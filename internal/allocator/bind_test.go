package allocator

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// oneBlock is a limit.
var oneBlock = ipam.Limit{Blocks: ipam.Maximum{Set: true, Count: space.CountOf64(1)}}

// claimNamed returns a claim of the namespace that claimOrder uses.
func claimNamed(name, uid string) *v1alpha1.IPClaim {
	return &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), ResourceVersion: "1"}}
}

// TestClaimIsBoundOnlyToItsOwnRecord changes one property of a record of the claim's name.
// If the record is not the claim's then, the claim gets another one.
func TestClaimIsBoundOnlyToItsOwnRecord(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*ipam.Record)
		own    bool
	}{
		"nothing":                      {func(*ipam.Record) {}, true},
		"its holder is another of it":  {func(r *ipam.Record) { r.HolderUID = "former" }, false},
		"its holder is not known":      {func(r *ipam.Record) { r.HolderUID = "" }, false},
		"it is retained, and too long": {func(r *ipam.Record) { r.State = ipam.StateRetained }, false},
		"it cools down":                {func(r *ipam.Record) { r.State = ipam.StateCooling }, false},
		"it is being deleted":          {func(*ipam.Record) {}, false},
	} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			former := heldBlock("x", "10.0.0.0/27")
			former.Name.Name, former.HolderUID = "x-former", "uid"
			c.change(&former)
			former = api.stores(t, former)
			if name == "it is being deleted" {
				api.terminates(t, former)
			}
			order := claimOrder("x", 28)
			order.existsAs("uid")
			record, err := a.Allocate(t.Context(), order)
			must(t, err)
			if !c.own {
				if record.UID == former.UID || record.Block.Overlaps(former.Block) || record.Name != convert.RecordOfHolder(order.Holder, "uid") || record.Adopted {
					t.Errorf("got %+v, want another record", record)
				}
				return
			}
			stored := api.stored(former.Name)
			if record.UID != former.UID || !record.Adopted || record.HolderUID != "uid" || record.Version != stored.ResourceVersion {
				t.Errorf("got %+v, want the record that was made for it", record)
			}
			if stored.Annotations[v1alpha1.AnnotationAdopted] == "" || stored.Spec.ClaimRef.UID != "uid" {
				t.Errorf("stored is %+v, which does not state that it was taken over", stored)
			}
		})
	}
}

// TestUnchangedTakenOverRecordIsNotRewritten makes later writes fail: while the record is as it
// was taken over, there is nothing to write.
func TestUnchangedTakenOverRecordIsNotRewritten(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		former := heldBlock("x", "10.0.0.0/28")
		former.Name.Name, former.HolderUID = "x-former", "uid"
		former = api.stores(t, former)
		holder := claimNamed("x", "uid")
		allocate := func() string {
			order := claimOrder("x", 28)
			order.SetHolder(holder)
			record, err := a.Allocate(t.Context(), order)
			must(t, err)
			synctest.Wait()
			if record.UID != former.UID {
				t.Errorf("it has %s, want the record that was made for it", record.Name)
			}
			return record.Version
		}
		for what, change := range map[string]func(ipam.Record){
			"a record that was changed": func(record ipam.Record) {
				_, err := a.SetReclaimPolicy(t.Context(), record, ipam.ReclaimRetain)
				must(t, err)
			},
			"the record of a holder that was changed": func(ipam.Record) { holder.ResourceVersion += "0" },
		} {
			version := allocate()
			if again := allocate(); again != version {
				t.Errorf("taken over again it is of version %s, want %s", again, version)
			}
			record, _ := a.Ledger.Record(former.Name)
			change(record)
			synctest.Wait()
			record, _ = a.Ledger.Record(former.Name)
			if again := allocate(); again == record.Version {
				t.Errorf("%s is not written to", what)
			}
		}
	})
}

func TestBindErrorStatesCause(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		order := claimOrder("x", 28)
		order.existsAs("uid")
		api.fails = errCut
		if _, err := a.Allocate(t.Context(), order); !errors.Is(err, errCut) {
			t.Errorf("cut off: got %v", err)
		}
		api.fails = nil
		otherRecord := heldBlock("y", "10.0.0.0/28") // under the name that x's record would have
		otherRecord.Name = convert.RecordOfHolder(order.Holder, "uid")
		api.stores(t, otherRecord)
		if _, err := a.Allocate(t.Context(), order); !errors.Is(err, ipam.ErrUnconfirmed) || !strings.Contains(err.Error(), "another process is binding IPClaim ns/x") {
			t.Errorf("where there is a record of the name: got %v", err)
		}
	})
}

// TestRequestWaitsForUnseenRecordOfSameName holds the watch up: another process made the
// record of the claim's name.
func TestRequestWaitsForUnseenRecordOfSameName(t *testing.T) {
	const late = 20 * time.Millisecond
	for name, attempt := range map[string]func(*scene, Order) error{
		"a claim": func(s *scene, o Order) error {
			_, err := s.allocator.Allocate(s.t.Context(), o)
			return err
		},
		"a pool": func(s *scene, o Order) error {
			_, err := s.allocator.Allocate(s.t.Context(), o)
			return err
		},
		"an address that is in use": func(s *scene, o Order) error {
			o.Terms.Block = netip.MustParsePrefix("10.0.0.4/32")
			_, err := s.allocator.RecordExisting(s.t.Context(), o, s.pool.Key)
			return err
		},
	} {
		runNamedScene(t, name, func(t *testing.T, s *scene) {
			s.list()
			order := s.bound("x", "uid", 32)
			s.recorded(order, "10.0.0.0/32")
			time.AfterFunc(late, func() { close(s.events) })
			began := time.Now()
			if err := attempt(s, order); !errors.Is(err, ipam.ErrUnconfirmed) {
				t.Errorf("got %v, want %v", err, ipam.ErrUnconfirmed)
			}
			if took := time.Since(began); took != late {
				t.Errorf("it took %v, want %v, until the record is shown", took, late)
			}
		})
	}
}

// TestRecordBeyondLimitIsAbandoned expects one of several records that exceed the limit together to
// give way.
func TestRecordBeyondLimitIsAbandoned(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		a.Catalog.SetProject("ns", "red")
		for _, claim := range []string{"x", "y"} {
			record := heldBlock(claim, map[string]string{"x": "10.0.0.0/28", "y": "10.0.0.16/28"}[claim])
			record.Name, record.HolderUID, record.Class, record.Project = convert.RecordOfHolder(record.Holder, claim), claim, "gold", "red"
			api.stores(t, record)
			api.otherObjects = append(api.otherObjects, claimNamed(claim, claim))
		}
		a.Catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "gold", Limit: oneBlock}})
		order := claimOrder("y", 28)
		order.existsAs("y")
		_, err := a.Allocate(t.Context(), order)
		if limit, ok := errors.AsType[*ipam.LimitError](err); !ok || limit.Subject != "IPClass gold" {
			t.Errorf("got %v, want that the limit is exceeded", err)
		}
		if api.stored(convert.RecordOfHolder(order.Holder, "y")) != nil {
			t.Error("the record still exists")
		}
		if api.stored(convert.RecordOfHolder(claimOrder("x", 28).Holder, "x")) == nil {
			t.Error("so is not the other one, which was first")
		}
	})
}

// TestTakeoverSkipsUnseenRecord expects that the record is not given up either: its holder is
// not known yet.
func TestTakeoverSkipsUnseenRecord(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		record := api.stores(t, heldBlock("x", "10.0.0.0/28"))
		record.UID = "not seen"
		calls := api.calls(nil)
		if _, err := a.TakeOver(t.Context(), record, "uid"); !errors.Is(err, ipam.ErrUnconfirmed) {
			t.Errorf("taken over: got %v", err)
		}
		if got := calls(); len(got) > 0 {
			t.Errorf("calls were %v", got)
		}
	})
}

// twoHolders returns a holder of each kind, with the reason of its condition while the pool that it
// needs is not ready.
func twoHolders() map[string]struct {
	holder ipam.Holder
	reason string
} {
	return map[string]struct {
		holder ipam.Holder
		reason string
	}{
		"a claim":      {claimOrder("x", 28).Holder, v1alpha1.ReasonPoolNotReady},
		"a child pool": {convert.HolderOfPool(ipam.PoolNamed("child")), v1alpha1.ReasonParentNotReady},
	}
}

func TestClosedPoolConfirmsNoRecord(t *testing.T) {
	closed := ipam.Pool{Key: ipam.PoolNamed("closed"), Home: parent().Key, CIDR: netip.MustParsePrefix("10.0.1.0/24"), Family: ipam.IPv4}
	for name, c := range twoHolders() {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			a.Ledger.Describe(closed)
			record := heldBlock("x", "10.0.1.0/28")
			record.Pool, record.Holder = closed.Key, c.holder
			if record.Holder.IsPool() {
				record.Purpose = ipam.PurposePool
			}
			record = api.stores(t, record)
			err := a.CheckConfirmed(record)
			missing, ok := errors.AsType[*ipam.MissingError](err)
			if !ok || missing.Reason != c.reason || missing.Message != "pool closed is being released, or its CIDR is not recorded: wait until it is ready, or use another pool" {
				t.Errorf("got %v, want it with reason %s", err, c.reason)
			}
		})
	}
}

func TestRecordIsAdoptedForItsHolder(t *testing.T) {
	for _, uid := range []string{"", "uid"} {
		runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
			own := ownRecord(a, ipam.PoolNamed("child"), "10.0.0.0/24", ipam.StateReleasing)
			own.HolderUID = uid
			own = api.stores(t, own)
			adopted, err := a.adopt(t.Context(), own, own.HolderUID)
			stored := api.stored(own.Name)
			if err != nil || !adopted.Adopted || adopted.State != ipam.StateBound || adopted.HolderUID != uid || adopted.Version != stored.ResourceVersion {
				t.Errorf("UID %q: got %+v, %v", uid, adopted, err)
			}
			if stored.Spec.State != v1alpha1.AllocationBound || string(stored.Spec.ClaimRef.UID) != uid || stored.Annotations[v1alpha1.AnnotationAdopted] == "" {
				t.Errorf("UID %q: stored is %+v", uid, stored)
			}
		})
	}
}

// TestRepeatedAdoptionRewritesRecord expects a write of the same content: a deletion that
// was decided on the former version is refused then.
func TestRepeatedAdoptionRewritesRecord(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		own := ownRecord(a, ipam.PoolNamed("child"), "10.0.0.0/24", ipam.StateBound)
		own.Adopted = true
		own = api.stores(t, own)
		adopted, err := a.adopt(t.Context(), own, own.HolderUID)
		if stored := api.stored(own.Name); err != nil || adopted.Version == own.Version || adopted.Version != stored.ResourceVersion {
			t.Errorf("got version %s, %v; was %s, stored is %s", adopted.Version, err, own.Version, stored.ResourceVersion)
		}
	})
}

func TestOnlyUIDOfStoredHolderIsRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		there []client.Object
		want  func(error) bool
	}{
		"it exists": {[]client.Object{claimNamed("x", "uid")}, func(err error) bool { return err == nil }},
		"it is gone": {nil, func(err error) bool {
			return apierrors.IsNotFound(err) && strings.Contains(err.Error(), "looking for IPClaim ns/x again")
		}},
		"another is in its place": {[]client.Object{claimNamed("x", "another")}, func(err error) bool {
			return apierrors.IsConflict(err) && strings.Contains(err.Error(), "stamping IPAllocation ns/")
		}},
	} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			record := heldBlock("x", "10.0.0.0/28")
			record.ReleaseAfter = time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
			record = api.stores(t, record)
			api.otherObjects = c.there
			stamped, err := a.Stamp(t.Context(), record, claimNamed("x", "uid"))
			if !c.want(err) {
				t.Fatalf("got %v", err)
			}
			stored := api.stored(record.Name)
			if err != nil {
				if stored.ResourceVersion != record.Version {
					t.Errorf("stored is %+v, though it failed", stored)
				}
				return
			}
			if stored.Spec.ClaimRef.UID != "uid" || stored.Spec.ReleaseAfter != nil {
				t.Errorf("stored is %+v, want it with the UID and for good", stored.Spec)
			}
			if stamped.HolderUID != "uid" || !stamped.ReleaseAfter.IsZero() || stamped.Version != stored.ResourceVersion {
				t.Errorf("got %+v", stamped)
			}
		})
	}
}

func TestRestoredClaimGetsFormerRecord(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*ipam.Record, *Order)
		want   bool
	}{
		"nothing":                           {func(*ipam.Record, *Order) {}, true},
		"nothing, but it is being deleted":  {func(*ipam.Record, *Order) {}, false},
		"nothing, but it cannot be patched": {func(*ipam.Record, *Order) {}, false},
		"it is of one of its pools":         {func(_ *ipam.Record, o *Order) { o.Pools = []ipam.Pool{{Key: ipam.PoolNamed("other")}, parent()} }, true},
		"the record is of another":          {func(r *ipam.Record, _ *Order) { r.Holder.Name = "y" }, false},
		"it has another block":              {func(r *ipam.Record, _ *Order) { r.Block = netip.MustParsePrefix("10.0.0.16/28") }, false},
		"it is retained":                    {func(r *ipam.Record, _ *Order) { r.State = ipam.StateRetained }, false},
		"it is of another pool":             {func(_ *ipam.Record, o *Order) { o.Pools = []ipam.Pool{{Key: ipam.PoolNamed("other")}} }, false},
		"it may have none of its pool":      {func(_ *ipam.Record, o *Order) { o.Pools = nil }, false},
		"it is of another class":            {func(r *ipam.Record, _ *Order) { r.Class = "gold" }, false},
		"the claim asks for another":        {func(_ *ipam.Record, o *Order) { o.Terms.Class = "gold" }, false},
		"both are of one class":             {func(r *ipam.Record, o *Order) { r.Class, o.Terms.Class = "gold", "gold" }, true},
		"its pool is closed": {func(r *ipam.Record, o *Order) {
			r.Pool = ipam.PoolNamed("closed")
			o.Pools = []ipam.Pool{{Key: r.Pool}}
		}, false},
		"its name is another": {func(r *ipam.Record, _ *Order) { r.Name.Name = "other" }, false},
	} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			order := claimOrder("x", 28)
			order.Terms.Block = netip.MustParsePrefix("10.0.0.0/28")
			record := order.recordOf(parent(), order.Terms.Block)
			record.Name.Name, record.HolderUID = "x-saved", "former"
			c.change(&record, &order)
			record = api.stores(t, record)
			switch name {
			case "nothing, but it is being deleted":
				api.terminates(t, record)
			case "nothing, but it cannot be patched":
				api.calls(map[string]error{"patch": errCut})
			}
			restored, ok := a.Restore(t.Context(), order, "x-saved")
			if ok != c.want {
				t.Fatalf("got %t, want %t", ok, c.want)
			}
			stored := api.stored(record.Name)
			if taken := stored.Annotations[v1alpha1.AnnotationAdopted] != ""; taken != c.want {
				t.Errorf("stored is %+v", stored)
			}
			if ok && (restored.UID != record.UID || restored.HolderUID != "" || stored.Spec.ClaimRef.UID != "") {
				t.Errorf("got %+v, want it for a claim that does not exist yet", restored)
			}
		})
	}
}
