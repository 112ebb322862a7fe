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
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// beginning holds an allocator that has begun to read the stored objects.
type beginning struct {
	*Allocator
	live      client.Reader
	informers *informertest.FakeInformers
	// claims is synced once all claims have been seen.
	claims *controllertest.FakeInformer
	server *apiServer
}

// begin returns an allocator that has seen all records. A list of claims by their records shows
// there; if err is set, that list fails with it.
func newSyncedAllocator(t *testing.T, o testOptions, err error, there ...client.Object) beginning {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), metav1.AddMetaToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	b := beginning{claims: controllertest.NewFakeInformer(), server: newAPIServer()}
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
	go view.Run(t.Context(), quick{b.server}, &v1alpha1.IPAllocation{})
	if err := b.Feed(t.Context(), b.informers); err != nil {
		t.Fatal(err)
	}
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
				if early := b.checkSynced() == nil; early != c.early || b.queue.Len() != c.line {
					t.Errorf("before the claims are known, handed out: %t, want %t; %d queued, want %d", early, c.early, b.queue.Len(), c.line)
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
				obj := convert.Allocation(heldBlock("never-stored", "10.0.0.0/28"))
				if err := b.server.create(obj); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if !b.ledger.WasNeverClaimed(ipam.Record{UID: string(obj.UID)}) {
					t.Error("it is not known that no claim has ever named a record which is made then")
				}
				if first, _ := b.queue.Waiter(convert.HolderOfClaim(ipam.Name{Namespace: "red", Name: "waits"})); first.IsZero() || b.queue.Len() != 1 {
					t.Errorf("in the end %d are queued, want the one that waits: %v", b.queue.Len(), first)
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
		b.queue.OnTurn("IPClaim", func(h ipam.Holder) { served = append(served, h.Name) })
		done := make(chan struct{})
		go func() { b.FeedClaims(t.Context(), b.live, b.informers); close(done) }()
		time.Sleep(retryInterval) // of the time in the bubble
		synctest.Wait()
		if b.queue.Len() != 2 || b.queue.Has(convert.HolderOfClaim(ipam.Name{Namespace: "blue", Name: "other"})) {
			t.Errorf("%d are queued, want the two of the namespace that is served", b.queue.Len())
		}
		b.claims.Add(next)
		b.claims.Synced()
		<-done
		if b.queue.Len() != 1 || !slices.Equal(served, []string{"next"}) {
			t.Errorf("%d are queued, and %q have been enqueued, want the next one", b.queue.Len(), served)
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

// TestClaimWatchIsRetried expects retries until the watch runs.
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
