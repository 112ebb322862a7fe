package allocator

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/queue"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

func TestClaimIsQueuedWhileItWaits(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		record := api.stores(t, heldBlock("x", "10.0.0.0/28"))
		a.Catalog.SetProject("ns", "ns")
		a.Ledger.MarkClaimsKnown()
		claim := build.Claim("ns", "x").Pool("parent").Length(28).Obj()
		changed := func(change func(*v1alpha1.IPClaim)) *v1alpha1.IPClaim {
			claim = claim.DeepCopy()
			change(claim)
			return claim
		}
		holder := convert.HolderOfClaim(ipam.Name{Namespace: "ns", Name: "x"})
		for _, step := range []struct {
			what                    string
			do                      func()
			waits, claimed, leaving bool
		}{
			{"it waits", func() { a.onClaimUpdate(claim) }, true, false, false},
			{"it asks for nothing that could be served", func() {
				a.onClaimUpdate(changed(func(c *v1alpha1.IPClaim) { c.Spec.PrefixLength = new(int32(200)) }))
			}, false, false, false},
			{"it waits again", func() {
				a.onClaimUpdate(changed(func(c *v1alpha1.IPClaim) { c.Spec.PrefixLength = new(int32(28)) }))
			}, true, false, false},
			{"it is deleted while it waits", func() {
				a.onClaimUpdate(changed(func(c *v1alpha1.IPClaim) { c.DeletionTimestamp = new(metav1.Now()) }))
			}, false, false, false},
			{"another of the name waits", func() { a.onClaimUpdate(changed(func(c *v1alpha1.IPClaim) { c.DeletionTimestamp = nil })) }, true, false, false},
			{"it has its block", func() {
				a.onClaimUpdate(changed(func(c *v1alpha1.IPClaim) { c.Spec.AllocationName = record.Name.Name }))
			}, false, true, false},
			{"it is being deleted", func() {
				a.onClaimUpdate(changed(func(c *v1alpha1.IPClaim) { c.DeletionTimestamp = new(metav1.Now()) }))
			}, false, true, true},
			{"it is gone", func() { a.onClaimDelete(claim) }, false, false, true},
		} {
			step.do()
			occupants, _ := a.Ledger.Occupants(parent().Key, 1)
			claimed := len(occupants) == 1 && occupants[0].Claimed
			if step.leaving { // left out
				claimed = step.claimed
			}
			if a.Queue.Has(holder) != step.waits || claimed != step.claimed || a.Ledger.IsLeaving(record.Name) != step.leaving {
				t.Errorf("%s: queued %t, claimed %t, leaving %t; want %t, %t, %t", step.what,
					a.Queue.Has(holder), claimed, a.Ledger.IsLeaving(record.Name), step.waits, step.claimed, step.leaving)
			}
		}
		other := api.stores(t, heldBlock("z", "10.0.1.0/28"))
		gone := build.Claim("ns", "z").Pool("parent").Length(28).Obj()
		gone.Spec.AllocationName = other.Name.Name
		a.onClaimUpdate(gone)
		if a.onClaimDelete(gone); !a.Ledger.IsLeaving(other.Name) {
			t.Error("the record of a claim that is gone at once is not about to go")
		}
		a.onClaimUpdate(build.Claim("ns", "y").Pool("parent").Length(28).Obj())
		a.onClaimDelete(build.Claim("ns", "y").Pool("parent").Length(28).Obj())
		if n := a.Queue.Len(); n != 0 {
			t.Errorf("%d are queued after the waiting claim is gone", n)
		}
	})
}

// TestQueueReasonIsReadFromConditions expects the reason from the conditions, so that all
// replicas have the same queue.
func TestQueueReasonIsReadFromConditions(t *testing.T) {
	for reason, want := range map[string]queue.WaitReason{
		"": queue.ReasonUnknown, v1alpha1.ReasonRecordRefused: queue.ReasonRefused, v1alpha1.ReasonLimitReached: queue.ReasonRefused,
		v1alpha1.ReasonPoolExhausted: queue.ReasonNoRoom, v1alpha1.ReasonPoolNotFound: queue.ReasonUnknown,
	} {
		var conditions []metav1.Condition
		if reason != "" {
			conditions = append(conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Reason: reason})
		}
		if got := waitReason(conditions); got != want {
			t.Errorf("%q: %v, want %v", reason, got, want)
		}
	}
}

func TestAllocationWaitsForEverySource(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		synced := false
		a.Queue.AddSource(func() bool { return synced })
		if err := a.checkSynced(); !errors.Is(err, ipam.ErrNotSynced) {
			t.Errorf("before: %v, want %v", err, ipam.ErrNotSynced)
		}
		synced = true
		if err := a.checkSynced(); err != nil {
			t.Errorf("after: %v", err)
		}
		synctest.Wait()
	})
}

func TestAllocationWaitsForEveryInformer(t *testing.T) {
	scheme := runtime.NewScheme()
	must(t, errors.Join(v1alpha1.AddToScheme(scheme), metav1.AddMetaToScheme(scheme)))
	kinds := []schema.GroupVersionKind{
		{Group: "meta.k8s.io", Version: "v1", Kind: "PartialObjectMetadata"}, v1alpha1.GroupVersion.WithKind("IPPool"),
		v1alpha1.GroupVersion.WithKind("LocalIPPool"), v1alpha1.GroupVersion.WithKind("IPClass"),
	}
	for _, late := range kinds {
		runNamedOnReplica(t, late.Kind, func(t *testing.T, a *Allocator, _ *steady) {
			informer := controllertest.NewFakeInformer()
			from := &informertest.FakeInformers{Scheme: scheme, InformersByGVK: map[schema.GroupVersionKind]cache.SharedIndexInformer{late: informer}}
			must(t, a.Feed(t.Context(), from))
			a.areWaitersListed.Store(true)
			if err := a.checkSynced(); !errors.Is(err, ipam.ErrNotSynced) {
				t.Errorf("before: %v, want %v", err, ipam.ErrNotSynced)
			}
			informer.Synced()
			if err := a.checkSynced(); err != nil {
				t.Errorf("after: %v", err)
			}
		})
	}
	failed := errors.New("no such kind")
	for name, from := range map[string]*informertest.FakeInformers{
		"cannot be had":        {Scheme: scheme, Error: failed},
		"has ended in between": {Scheme: scheme, InformersByGVK: map[schema.GroupVersionKind]cache.SharedIndexInformer{kinds[1]: ended{err: failed}}},
	} {
		if err := newUnsyncedAllocator().Feed(t.Context(), from); !errors.Is(err, failed) {
			t.Errorf("an informer that %s: got %v, want %v", name, err, failed)
		}
	}
}

// ended implements an informer that takes no handlers any more.
type ended struct {
	cache.SharedIndexInformer
	err error
}

func (e ended) AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return nil, e.err
}

// beginning holds an allocator that has begun to read the stored objects.
type beginning struct {
	*Allocator
	live      client.Reader
	informers *informertest.FakeInformers
	// claims is synced once all claims have been seen.
	claims *controllertest.FakeInformer
	server *steady
}

// newSyncedAllocator returns an allocator that has seen all records. A list of claims by their records shows
// there; if err is set, that list fails with it.
func newSyncedAllocator(t *testing.T, o testOptions, err error, there ...client.Object) beginning {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, errors.Join(v1alpha1.AddToScheme(scheme), metav1.AddMetaToScheme(scheme)))
	b := beginning{claims: controllertest.NewFakeInformer(), server: newSteady()}
	b.server.pass()
	b.live = fake.NewClientBuilder().WithScheme(scheme).WithObjects(there...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
	}).WithIndex(&v1alpha1.IPClaim{}, "spec.allocationName", func(obj client.Object) []string {
		return []string{obj.(*v1alpha1.IPClaim).Spec.AllocationName}
	}).Build()
	b.informers = &informertest.FakeInformers{Scheme: scheme, InformersByGVK: map[schema.GroupVersionKind]cache.SharedIndexInformer{v1alpha1.GroupVersion.WithKind("IPClaim"): b.claims}}
	view := ledger.New(ledger.Options{Clock: clock.RealClock{}})
	o.Ledger, o.UnclaimedLimit = view, 7
	b.Allocator = newAllocator(o)
	go view.Run(t.Context(), watched{b.server}, &v1alpha1.IPAllocation{})
	must(t, b.Feed(t.Context(), b.informers))
	return b
}

func TestAllocationWaitsForQueuedClaims(t *testing.T) {
	waits, gone, has := build.Claim("red", "waits").Class("gold").Obj(), build.Claim("red", "gone").Class("gold").Obj(), build.Claim("red", "has").Class("gold").Obj()
	has.Spec.AllocationName = "record"
	for name, c := range map[string]struct {
		err error // of the list of waiting claims
		// early reports whether blocks are handed out before all claims are known.
		early bool
		// line is the length of the queue then.
		line int
	}{
		"they can be listed":    {nil, true, 2},
		"they cannot be listed": {errors.New("no such selector"), false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newSyncedAllocator(t, testOptions{}, c.err, waits, gone, has)
				if err := b.checkSynced(); !errors.Is(err, ipam.ErrNotSynced) {
					t.Errorf("at first: %v, want %v", err, ipam.ErrNotSynced)
				}
				go b.FeedClaims(t.Context(), b.live, b.informers)
				time.Sleep(2 * waiterListTimeout)
				if early := b.checkSynced() == nil; early != c.early || b.Queue.Len() != c.line {
					t.Errorf("before the claims are known, handed out: %t, want %t; %d queued, want %d", early, c.early, b.Queue.Len(), c.line)
				}
				if b.KnowsClaims() || b.unclaimedLimit() != 0 {
					t.Errorf("before the claims are known, that they are: %t; unbound records are bound to %d", b.KnowsClaims(), b.unclaimedLimit())
				}
				b.claims.Add(waits)
				b.claims.Add(has)
				b.claims.Synced()
				time.Sleep(2 * retryInterval)
				if err := b.checkSynced(); err != nil || !b.KnowsClaims() || b.unclaimedLimit() != 7 {
					t.Errorf("in the end: %v; claims are known: %t; unbound records are bound to %d", err, b.KnowsClaims(), b.unclaimedLimit())
				}
				record := b.server.stores(t, heldBlock("never-stored", "10.0.0.0/28"))
				if !b.Ledger.WasNeverClaimed(record) {
					t.Error("it is not known that no claim has ever named a record which is made then")
				}
				if first, _ := b.Queue.Waiter(convert.HolderOfClaim(ipam.Name{Namespace: "red", Name: "waits"})); first.IsZero() || b.Queue.Len() != 1 {
					t.Errorf("in the end %d are queued, want the one that waits: %v", b.Queue.Len(), first)
				}
			})
		})
	}
}

// TestPositionIsKeptOnlyForServedNamespace expects that only claims of the served namespace are kept,
// until they are known to be gone: the next claim of their namespace takes the position then.
func TestPositionIsKeptOnlyForServedNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone, next, other := build.Claim("red", "gone").Class("gold").Obj(), build.Claim("red", "next").Class("gold").Obj(), build.Claim("blue", "other").Class("gold").Obj()
		next.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Second))
		b := newSyncedAllocator(t, testOptions{WatchNamespace: "red", WaitingLimit: 1}, nil, gone, next, other)
		var served []string
		b.Queue.OnTurn("IPClaim", func(h ipam.Holder) { served = append(served, h.Name) })
		done := make(chan struct{})
		go func() { b.FeedClaims(t.Context(), b.live, b.informers); close(done) }()
		time.Sleep(retryInterval) // of the time in the bubble
		synctest.Wait()
		if b.Queue.Len() != 2 || b.Queue.Has(convert.HolderOfClaim(ipam.Name{Namespace: "blue", Name: "other"})) {
			t.Errorf("%d are queued, want the two of the namespace that is served", b.Queue.Len())
		}
		b.claims.Add(next)
		b.claims.Synced()
		<-done
		if b.Queue.Len() != 1 || !slices.Equal(served, []string{"next"}) {
			t.Errorf("%d are queued, and %q have been enqueued, want the next one", b.Queue.Len(), served)
		}
	})
}

// failing implements informers that are not available the given number of times, and then take no
// handlers once.
type failing struct {
	*informertest.FakeInformers
	times int
}

func (f *failing) GetInformer(ctx context.Context, obj client.Object, opts ...ctrlcache.InformerGetOption) (ctrlcache.Informer, error) {
	switch f.times--; {
	case f.times > 0:
		return nil, errors.New("no informer")
	case f.times == 0:
		return ended{err: errors.New("it has ended")}, nil
	}
	return f.FakeInformers.GetInformer(ctx, obj, opts...)
}

func TestClaimWatchIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSyncedAllocator(t, testOptions{}, nil)
		b.claims.Synced()
		b.FeedClaims(t.Context(), b.live, &failing{b.informers, 3})
		if !b.KnowsClaims() {
			t.Error("claims are not known in the end")
		}
	})
}
