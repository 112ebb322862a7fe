package allocator

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/queue"
	"github.com/cadastre-dev/cadastre/test/build"
)

// TestAClaimIsInLineWhileItWaits and its record is known to be claimed while it has one.
func TestAClaimIsInLineWhileItWaits(t *testing.T) {
	onReplica(t, func(t *testing.T, a *Allocator, over *steady) {
		record := over.stores(t, heldBlock("x", "10.0.0.0/28"))
		a.catalogue.SetProject("ns", "ns")
		a.ledger.ClaimsKnown()
		claim := build.Claim("ns", "x").Pool("parent").Length(28).Obj()
		changed := func(change func(*v1alpha1.IPClaim)) *v1alpha1.IPClaim {
			claim = claim.DeepCopy()
			change(claim)
			return claim
		}
		holder := HolderOfClaim(ipam.Name{Namespace: "ns", Name: "x"})
		for _, step := range []struct {
			what                    string
			do                      func()
			waits, claimed, leaving bool
		}{
			{"it waits", func() { a.takeClaim(claim) }, true, false, false},
			{"it asks for nothing that could be served", func() {
				a.takeClaim(changed(func(c *v1alpha1.IPClaim) { c.Spec.PrefixLength = new(int32(200)) }))
			}, false, false, false},
			{"it waits again", func() { a.takeClaim(changed(func(c *v1alpha1.IPClaim) { c.Spec.PrefixLength = new(int32(28)) })) }, true, false, false},
			{"it is deleted while it waits", func() {
				a.takeClaim(changed(func(c *v1alpha1.IPClaim) { c.DeletionTimestamp = new(metav1.Now()) }))
			}, false, false, false},
			{"another of the name waits", func() { a.takeClaim(changed(func(c *v1alpha1.IPClaim) { c.DeletionTimestamp = nil })) }, true, false, false},
			{"it has its block", func() { a.takeClaim(changed(func(c *v1alpha1.IPClaim) { c.Spec.AllocationName = record.Name.Name })) }, false, true, false},
			{"it is being deleted", func() { a.takeClaim(changed(func(c *v1alpha1.IPClaim) { c.DeletionTimestamp = new(metav1.Now()) })) }, false, true, true},
			{"it is gone", func() { a.loseClaim(claim) }, false, false, true},
		} {
			step.do()
			occupants, _ := a.ledger.Occupants(parent().Key, 1)
			claimed := len(occupants) == 1 && occupants[0].Claimed
			if step.leaving { // which are left out
				claimed = step.claimed
			}
			if a.queue.Has(holder) != step.waits || claimed != step.claimed || a.ledger.IsLeaving(record.Name) != step.leaving {
				t.Errorf("%s: in line %t, claimed %t, leaving %t; want %t, %t, %t", step.what,
					a.queue.Has(holder), claimed, a.ledger.IsLeaving(record.Name), step.waits, step.claimed, step.leaving)
			}
		}
		other := over.stores(t, heldBlock("z", "10.0.1.0/28"))
		gone := build.Claim("ns", "z").Pool("parent").Length(28).Obj()
		gone.Spec.AllocationName = other.Name.Name
		a.takeClaim(gone)
		if a.loseClaim(gone); !a.ledger.IsLeaving(other.Name) {
			t.Error("the record of a claim that is gone at once is not about to go")
		}
		a.takeClaim(build.Claim("ns", "y").Pool("parent").Length(28).Obj())
		a.loseClaim(build.Claim("ns", "y").Pool("parent").Length(28).Obj())
		if n := a.queue.Len(); n != 0 {
			t.Errorf("%d are in line after the one that waited is gone", n)
		}
	})
}

// TestWhereAClaimStandsIsReadFromItsConditions so that all replicas have the same line.
func TestWhereAClaimStandsIsReadFromItsConditions(t *testing.T) {
	for reason, want := range map[string]queue.Standing{
		"": queue.Unknown, v1alpha1.ReasonRecordRefused: queue.Refused, v1alpha1.ReasonLimitReached: queue.Refused,
		v1alpha1.ReasonPoolExhausted: queue.WantsRoom, v1alpha1.ReasonPoolNotFound: queue.Unknown,
	} {
		var conditions []metav1.Condition
		if reason != "" {
			conditions = append(conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Reason: reason})
		}
		if got := standing(conditions); got != want {
			t.Errorf("%q: %v, want %v", reason, got, want)
		}
	}
}

// TestAPoolThatCannotBeReadHandsOutNothing nor is it in line.
func TestAPoolThatCannotBeReadHandsOutNothing(t *testing.T) {
	inScene(t, func(s *scene) {
		s.begun()
		a := s.allocator
		key := ipam.PoolNamed("child")
		child := versioned(build.Pool("child").Child("p", 30).Obj(), "7")
		broken := versioned(build.Pool("child").Child("p", 30).CIDR("10.0.0.300/30").Obj(), "8")
		broken.Generation = 2
		for _, step := range []struct {
			what    string
			do      func()
			there   bool
			waiting int
		}{
			{"a child waits", func() { a.takePool(child) }, true, 1},
			{"it cannot be read", func() { a.takePool(broken) }, false, 0},
			{"it can", func() { a.takePool(versioned(child, "9")) }, true, 1},
			{"it is being deleted", func() { p := versioned(child, "10"); p.DeletionTimestamp = new(metav1.Now()); a.takePool(p) }, true, 0},
		} {
			step.do()
			if _, there := a.catalogue.Pool(key); there != step.there || a.queue.Len() != step.waiting {
				t.Errorf("%s: it is known: %t, and %d wait; want %t, %d", step.what, there, a.queue.Len(), step.there, step.waiting)
			}
		}
		open := versioned(build.Pool("open").CIDR("10.2.0.0/24").Obj(), "11")
		a.takePool(open)
		if _, ok := a.ledger.Capacity(ipam.PoolNamed("open")); !ok {
			t.Error("the ledger does not know a pool that can be read")
		}
		a.losePool(open)
		if _, ok := a.ledger.Capacity(ipam.PoolNamed("open")); ok {
			t.Error("the ledger knows a pool that is gone")
		}
	})
}

func TestWhichPoolsWaitForTheirParent(t *testing.T) {
	for name, c := range map[string]struct {
		pool      *v1alpha1.IPPool
		allocated string
		want      bool
	}{
		"a root":                                 {build.Pool("p").CIDR("10.0.0.0/24").Obj(), "", false},
		"a child without a CIDR":                 {build.Pool("p").Child("q", 24).Obj(), "", true},
		"a child that has its CIDR":              {build.Pool("p").Child("q", 24).CIDR("10.0.0.0/24").Obj(), "10.0.0.0/24", false},
		"a child made again with it":             {build.Pool("p").Child("q", 24).CIDR("10.0.0.0/24").Obj(), "", true},
		"a root of which nothing is written yet": {build.Pool("p").CIDR("10.0.0.0/24").Obj(), "10.0.0.0/24", false},
	} {
		c.pool.Status.AllocatedCIDR = c.allocated
		pool, errs := unstarted().ReadPool(c.pool)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		if got := waits(c.pool, pool); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

func TestSinceWhenAPoolIsOpen(t *testing.T) {
	since := metav1.NewTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	a := unstarted()
	for name, c := range map[string]struct {
		conditions []metav1.Condition
		want       time.Time
	}{
		"nothing is said": {nil, time.Time{}},
		"it is not ready": {[]metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, LastTransitionTime: since}}, time.Time{}},
		"it is ready":     {[]metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, LastTransitionTime: since}}, since.Time},
	} {
		pool := build.Pool("p").CIDR("10.0.0.0/24").Obj()
		pool.Status.Conditions = c.conditions
		a.enterPool(pool)
		if got, _ := a.catalogue.Pool(ipam.PoolNamed("p")); !got.OpenSince.Equal(c.want) {
			t.Errorf("%s: since %v, want %v", name, got.OpenSince, c.want)
		}
	}
}

func TestAClassIsKnownWhileItCanBeRead(t *testing.T) {
	a := unstarted()
	class := build.Class("gold").Length(28).Obj()
	class.Annotations = map[string]string{v1alpha1.AnnotationDefaultClass: "true"}
	a.takeClass(class)
	if got, ok := a.catalogue.Class("gold"); !ok || !got.Default || got.Length != 28 {
		t.Errorf("got %+v, %t; want it, as the default", got, ok)
	}
	class = class.DeepCopy()
	class.Annotations[v1alpha1.AnnotationDefaultClass] = "false"
	a.takeClass(class)
	if got, _ := a.catalogue.Class("gold"); got.Default {
		t.Error("it is the default still")
	}
	class = class.DeepCopy()
	class.Spec.DefaultPrefixLength = new(int32(200))
	a.takeClass(class)
	if got, ok := a.catalogue.Class("gold"); ok {
		t.Errorf("got %+v, which cannot be read", got)
	}
}

// TestWhatAnInformerTells also of deletions that it missed.
func TestWhatAnInformerTells(t *testing.T) {
	var calls []string
	h := handler(
		func(c *v1alpha1.IPClaim) { calls = append(calls, "take "+string(c.UID)) },
		func(c *v1alpha1.IPClaim) { calls = append(calls, "lose "+string(c.UID)) })
	a, b := claimNamed("x", "a"), claimNamed("x", "b")
	for name, c := range map[string]struct {
		do   func()
		want []string
	}{
		"it comes":                         {func() { h.OnAdd(a, false) }, []string{"take a"}},
		"it changes":                       {func() { h.OnUpdate(a, a) }, []string{"take a"}},
		"another is in its place":          {func() { h.OnUpdate(a, b) }, []string{"lose a", "take b"}},
		"it goes":                          {func() { h.OnDelete(a) }, []string{"lose a"}},
		"it is gone, and was missed":       {func() { h.OnDelete(cache.DeletedFinalStateUnknown{Obj: a}) }, []string{"lose a"}},
		"what is gone was not of the kind": {func() { h.OnDelete(cache.DeletedFinalStateUnknown{Obj: "x"}) }, nil},
	} {
		calls = nil
		if c.do(); !slices.Equal(calls, c.want) {
			t.Errorf("%s: calls %v, want %v", name, calls, c.want)
		}
	}
}

// TestNothingIsHandedOutBeforeEverySourceIsSynced that was added.
func TestNothingIsHandedOutBeforeEverySourceIsSynced(t *testing.T) {
	onReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		synced := false
		a.FedBy(func() bool { return synced })
		if err := a.Synced(); !errors.Is(err, ipam.ErrNotSynced) {
			t.Errorf("before: %v, want %v", err, ipam.ErrNotSynced)
		}
		synced = true
		if err := a.Synced(); err != nil {
			t.Errorf("after: %v", err)
		}
		synctest.Wait()
	})
}

// TestWhatIsWatchedIsToBeSeenBeforeAnythingIsHandedOut and an informer that cannot be had
// is an error.
func TestWhatIsWatchedIsToBeSeenBeforeAnythingIsHandedOut(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), metav1.AddMetaToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	kinds := []schema.GroupVersionKind{
		{Group: "meta.k8s.io", Version: "v1", Kind: "PartialObjectMetadata"}, v1alpha1.GroupVersion.WithKind("IPPool"),
		v1alpha1.GroupVersion.WithKind("LocalIPPool"), v1alpha1.GroupVersion.WithKind("IPClass"),
	}
	for _, late := range kinds {
		t.Run(late.Kind, func(t *testing.T) {
			onReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
				informer := controllertest.NewFakeInformer()
				from := &informertest.FakeInformers{Scheme: scheme, InformersByGVK: map[schema.GroupVersionKind]cache.SharedIndexInformer{late: informer}}
				if err := a.Feed(t.Context(), from); err != nil {
					t.Fatal(err)
				}
				a.waitersSeen = true
				if err := a.Synced(); !errors.Is(err, ipam.ErrNotSynced) {
					t.Errorf("before: %v, want %v", err, ipam.ErrNotSynced)
				}
				informer.Synced()
				if err := a.Synced(); err != nil {
					t.Errorf("after: %v", err)
				}
			})
		})
	}
	failed := errors.New("no such kind")
	for name, from := range map[string]*informertest.FakeInformers{
		"cannot be had":        {Scheme: scheme, Error: failed},
		"has ended in between": {Scheme: scheme, InformersByGVK: map[schema.GroupVersionKind]cache.SharedIndexInformer{kinds[1]: ended{err: failed}}},
	} {
		if err := unstarted().Feed(t.Context(), from); !errors.Is(err, failed) {
			t.Errorf("an informer that %s: got %v, want %v", name, err, failed)
		}
	}
}

// ended is an informer that takes no handlers any more.
type ended struct {
	cache.SharedIndexInformer
	err error
}

func (e ended) AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return nil, e.err
}
