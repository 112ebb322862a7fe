package allocator

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

const (
	// retryInterval is the interval of retries, and of the check whether all claims are known.
	retryInterval = 100 * time.Millisecond
	// waiterListTimeout bounds the attempts to list the waiting claims before all claims are seen.
	waiterListTimeout = 10 * time.Second
)

// Feed keeps the catalog up to date from the informers of a cache. It is called once, before the
// cache is started; FeedClaims does the rest.
func (a *Allocator) Feed(ctx context.Context, informerCache ctrlcache.Cache) error {
	sources, err := a.Catalog.Feed(ctx, informerCache)
	if err != nil {
		return err
	}
	for _, synced := range sources {
		a.Queue.AddSource(synced)
	}
	neverSynced := func() bool { return false }
	a.claimsSynced.Store(&neverSynced)
	a.Queue.AddSource(func() bool { return a.areWaitersListed.Load() || a.KnowsClaims() })
	return nil
}

// FeedClaims keeps the queue and the ledger's knowledge of claims up to date. There may be a
// hundred thousand claims, and few of them wait: it lists the waiting ones first, so that blocks
// can be handed out before the others are known, and no waiter is overtaken. It is called once,
// after Feed, and returns when all claims are known.
func (a *Allocator) FeedClaims(ctx context.Context, live client.Reader, informerCache ctrlcache.Cache) {
	err := wait.PollUntilContextTimeout(ctx, retryInterval, waiterListTimeout, true, func(ctx context.Context) (bool, error) {
		return a.logRetry(a.joinWaiters(ctx, live)), nil
	})
	if err == nil {
		a.areWaitersListed.Store(true)
	}
	// An informer that exists before its cache starts blocks every reader until it has synced.
	if !informerCache.WaitForCacheSync(ctx) {
		return
	}
	err = wait.PollUntilContextCancel(ctx, retryInterval, true, func(ctx context.Context) (bool, error) {
		return a.logRetry(a.watchClaims(ctx, informerCache)), nil
	})
	if err != nil {
		return
	}
	err = wait.PollUntilContextCancel(ctx, retryInterval, true, func(context.Context) (bool, error) { return a.KnowsClaims(), nil })
	if err != nil {
		return
	}
	a.Ledger.MarkClaimsKnown()
	a.Queue.LeaveProvisional() // they were gone when the watch began
}

// KnowsClaims reports whether every IPClaim has been seen once. Until then a cache of claims blocks
// its readers, and claimed records may seem unclaimed. It returns true if claims are not fed.
func (a *Allocator) KnowsClaims() bool { return (*a.claimsSynced.Load())() }

// logRetry reports whether there was no error, and logs it otherwise.
func (a *Allocator) logRetry(err error) bool {
	if err != nil {
		a.Log.Error(err, "Could not watch IPClaims; retrying")
	}
	return err == nil
}

// joinWaiters adds each claim without record to the queue, provisionally. The API server's cache is
// good enough; otherwise it would sometimes read all claims from etcd to be sure, which takes many
// times as long.
func (a *Allocator) joinWaiters(ctx context.Context, live client.Reader) error {
	claims := &v1alpha1.IPClaimList{}
	cached := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
	if err := live.List(ctx, claims, client.MatchingFields{"spec.allocationName": ""}, cached); err != nil {
		return fmt.Errorf("listing IPClaims that wait: %w", err)
	}
	for i := range claims.Items {
		if w, ok := waiterOf(&claims.Items[i]); ok {
			a.Queue.WaitProvisionally(w)
		}
	}
	return nil
}

func (a *Allocator) watchClaims(ctx context.Context, informerCache ctrlcache.Cache) error {
	informer, err := informerCache.GetInformer(ctx, &v1alpha1.IPClaim{}, ctrlcache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(kubeutil.Handler(a.onClaimUpdate, a.onClaimDelete))
	if err != nil {
		return err
	}
	hasSynced := registration.HasSynced
	a.claimsSynced.Store(&hasSynced)
	return nil
}

// onClaimUpdate updates the queue and the ledger for a claim that was added or has changed.
func (a *Allocator) onClaimUpdate(obj *v1alpha1.IPClaim) {
	name := ipam.Name{Namespace: obj.Namespace, Name: obj.Name}
	holder := convert.HolderOfClaim(name)
	if record := obj.Spec.AllocationName; record != "" {
		a.Queue.Leave(holder)
		a.Ledger.SetClaimed(ipam.Name{Namespace: obj.Namespace, Name: record}, true)
		if !obj.DeletionTimestamp.IsZero() {
			a.Ledger.MarkLeaving(ipam.Name{Namespace: obj.Namespace, Name: record})
		}
		return
	}
	if w, ok := waiterOf(obj); ok {
		a.Queue.Wait(w)
	} else {
		a.Queue.Leave(holder)
	}
}

// waiterOf returns the waiter of a claim without a record; false if the claim is not to wait.
func waiterOf(obj *v1alpha1.IPClaim) (queue.Waiter, bool) {
	req, errs := convert.Claim(obj)
	return queue.Waiter{
		Since: obj.CreationTimestamp.Time, Holder: convert.HolderOfClaim(ipam.Name{Namespace: obj.Namespace, Name: obj.Name}), Request: req,
		Reason: waitReason(obj.Status.Conditions),
	}, len(errs) == 0 && obj.DeletionTimestamp.IsZero()
}

// waitReason returns the reason to wait in the conditions, which every replica reads there.
func waitReason(conditions []metav1.Condition) queue.WaitReason {
	switch ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); {
	case ready == nil:
		return queue.ReasonUnknown
	case ready.Reason == v1alpha1.ReasonRecordRefused, ready.Reason == v1alpha1.ReasonLimitReached:
		return queue.ReasonRefused
	case ready.Reason == v1alpha1.ReasonPoolExhausted:
		return queue.ReasonNoRoom
	}
	return queue.ReasonUnknown
}

// onClaimDelete updates the queue and the ledger for a claim that is gone.
func (a *Allocator) onClaimDelete(obj *v1alpha1.IPClaim) {
	a.Queue.Leave(convert.HolderOfClaim(ipam.Name{Namespace: obj.Namespace, Name: obj.Name}))
	if record := obj.Spec.AllocationName; record != "" {
		a.Ledger.SetClaimed(ipam.Name{Namespace: obj.Namespace, Name: record}, false)
	}
}
