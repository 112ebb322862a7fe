package allocator

import (
	"errors"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/queue"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// TestClaimIsQueuedWhileItWaits expects also that its record is known to be claimed while the
// claim has one.
func TestClaimIsQueuedWhileItWaits(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		record := api.stores(t, heldBlock("x", "10.0.0.0/28"))
		a.catalog.SetProject("ns", "ns")
		a.ledger.MarkClaimsKnown()
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
			{"it waits", func() { a.claims.onClaimUpdate(claim) }, true, false, false},
			{"it asks for nothing that could be served", func() {
				a.claims.onClaimUpdate(changed(func(c *v1alpha1.IPClaim) { c.Spec.PrefixLength = new(int32(200)) }))
			}, false, false, false},
			{"it waits again", func() {
				a.claims.onClaimUpdate(changed(func(c *v1alpha1.IPClaim) { c.Spec.PrefixLength = new(int32(28)) }))
			}, true, false, false},
			{"it is deleted while it waits", func() {
				a.claims.onClaimUpdate(changed(func(c *v1alpha1.IPClaim) { c.DeletionTimestamp = new(metav1.Now()) }))
			}, false, false, false},
			{"another of the name waits", func() { a.claims.onClaimUpdate(changed(func(c *v1alpha1.IPClaim) { c.DeletionTimestamp = nil })) }, true, false, false},
			{"it has its block", func() {
				a.claims.onClaimUpdate(changed(func(c *v1alpha1.IPClaim) { c.Spec.AllocationName = record.Name.Name }))
			}, false, true, false},
			{"it is being deleted", func() {
				a.claims.onClaimUpdate(changed(func(c *v1alpha1.IPClaim) { c.DeletionTimestamp = new(metav1.Now()) }))
			}, false, true, true},
			{"it is gone", func() { a.claims.onClaimDelete(claim) }, false, false, true},
		} {
			step.do()
			occupants, _ := a.ledger.Occupants(parent().Key, 1)
			claimed := len(occupants) == 1 && occupants[0].Claimed
			if step.leaving { // left out
				claimed = step.claimed
			}
			if a.queue.Has(holder) != step.waits || claimed != step.claimed || a.ledger.IsLeaving(record.Name) != step.leaving {
				t.Errorf("%s: queued %t, claimed %t, leaving %t; want %t, %t, %t", step.what,
					a.queue.Has(holder), claimed, a.ledger.IsLeaving(record.Name), step.waits, step.claimed, step.leaving)
			}
		}
		other := api.stores(t, heldBlock("z", "10.0.1.0/28"))
		gone := build.Claim("ns", "z").Pool("parent").Length(28).Obj()
		gone.Spec.AllocationName = other.Name.Name
		a.claims.onClaimUpdate(gone)
		if a.claims.onClaimDelete(gone); !a.ledger.IsLeaving(other.Name) {
			t.Error("the record of a claim that is gone at once is not about to go")
		}
		a.claims.onClaimUpdate(build.Claim("ns", "y").Pool("parent").Length(28).Obj())
		a.claims.onClaimDelete(build.Claim("ns", "y").Pool("parent").Length(28).Obj())
		if n := a.queue.Len(); n != 0 {
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

// TestAllocationWaitsForEverySource covers each source that was added.
func TestAllocationWaitsForEverySource(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		synced := false
		a.queue.AddSource(func() bool { return synced })
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

// TestAllocationWaitsForEveryInformer expects also an error if an informer is not
// available.
func TestAllocationWaitsForEveryInformer(t *testing.T) {
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
			runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
				informer := controllertest.NewFakeInformer()
				from := &informertest.FakeInformers{Scheme: scheme, InformersByGVK: map[schema.GroupVersionKind]cache.SharedIndexInformer{late: informer}}
				if err := a.Feed(t.Context(), from); err != nil {
					t.Fatal(err)
				}
				a.claims.areWaitersListed.Store(true)
				if err := a.checkSynced(); !errors.Is(err, ipam.ErrNotSynced) {
					t.Errorf("before: %v, want %v", err, ipam.ErrNotSynced)
				}
				informer.Synced()
				if err := a.checkSynced(); err != nil {
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
