package allocator

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

const (
	// retryInterval is the interval at which a failed attempt is repeated, and at which it is checked
	// whether all claims are known.
	retryInterval = 100 * time.Millisecond
	// waiterListTimeout bounds the attempts to list the waiting claims before all claims are seen.
	waiterListTimeout = 10 * time.Second
)

// Feed keeps the catalog up to date from the informers of a cache. The caller calls it once, before
// the cache is started; FeedClaims does the rest.
func (a *Allocator) Feed(ctx context.Context, informerCache ctrlcache.Cache) error {
	sources, err := a.catalog.Feed(ctx, informerCache)
	if err != nil {
		return err
	}
	for _, synced := range sources {
		a.queue.AddSource(synced)
	}
	a.claims.requireClaims()
	return nil
}

// FeedClaims keeps the queue and the ledger's knowledge of claims up to date from the informer of a
// cache. There may be a hundred thousand claims, and few of them wait: FeedClaims lists the waiting
// ones first, so that blocks can be handed out before the others are known, and no waiter is
// overtaken. It returns when all claims are known, or ctx is done. The caller calls it once, after
// Feed.
func (a *Allocator) FeedClaims(ctx context.Context, live client.Reader, informerCache ctrlcache.Cache) {
	a.claims.feed(ctx, live, informerCache)
}

// KnowsClaims reports whether every IPClaim has been seen once. Until then a cache of claims blocks
// its readers, and claimed records may seem unclaimed.
func (a *Allocator) KnowsClaims() bool { return a.claims.isSynced() }

// claims holds the sources of the IPClaims that this process has seen: the queue has the waiting
// ones, the ledger the records of the others.
type claims struct {
	ledger *ledger.Ledger
	queue  *queue.Queue
	log    logr.Logger
	// synced reports whether every IPClaim has been seen once, areWaitersListed whether the waiting ones
	// have been.
	synced           atomic.Pointer[func() bool]
	areWaitersListed atomic.Bool
}

// newClaims returns claims that are not fed yet.
func newClaims(l *ledger.Ledger, q *queue.Queue, log logr.Logger) *claims {
	c := &claims{ledger: l, queue: q, log: log}
	alwaysSynced := func() bool { return true }
	c.synced.Store(&alwaysSynced)
	return c
}

// requireClaims blocks allocation until the waiting claims have been seen.
func (c *claims) requireClaims() {
	neverSynced := func() bool { return false }
	c.synced.Store(&neverSynced)
	c.queue.AddSource(func() bool { return c.areWaitersListed.Load() || c.isSynced() })
}

// isSynced reports whether every IPClaim has been seen once.
func (c *claims) isSynced() bool {
	synced := c.synced.Load()
	return synced != nil && (*synced)()
}

func (c *claims) feed(ctx context.Context, live client.Reader, informerCache ctrlcache.Cache) {
	err := wait.PollUntilContextTimeout(ctx, retryInterval, waiterListTimeout, true, func(ctx context.Context) (bool, error) {
		return c.logRetry(c.joinWaiters(ctx, live)), nil
	})
	if err == nil {
		c.areWaitersListed.Store(true)
	}
	// An informer that exists before its cache starts blocks every reader until it has synced.
	if !informerCache.WaitForCacheSync(ctx) {
		return
	}
	err = wait.PollUntilContextCancel(ctx, retryInterval, true, func(ctx context.Context) (bool, error) {
		return c.logRetry(c.watchClaims(ctx, informerCache)), nil
	})
	if err != nil {
		return
	}
	err = wait.PollUntilContextCancel(ctx, retryInterval, true, func(context.Context) (bool, error) { return c.isSynced(), nil })
	if err != nil {
		return
	}
	c.ledger.MarkClaimsKnown()
	c.queue.LeaveProvisional() // they were gone when the watch began
}

// logRetry reports whether there was no error, and logs it otherwise.
func (c *claims) logRetry(err error) bool {
	if err != nil {
		c.log.Error(err, "Could not watch IPClaims; retrying")
	}
	return err == nil
}

// joinWaiters adds each claim that has no record yet to the queue, provisionally. As for any first
// list of a cache, the API server's own cache is good enough; otherwise the API server would
// sometimes read all claims from etcd to be sure, which takes it many times as long.
func (c *claims) joinWaiters(ctx context.Context, live client.Reader) error {
	claims := &v1alpha1.IPClaimList{}
	cached := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
	if err := live.List(ctx, claims, client.MatchingFields{"spec.allocationName": ""}, cached); err != nil {
		return fmt.Errorf("listing IPClaims that wait: %w", err)
	}
	for i := range claims.Items {
		if w, ok := waiterOf(&claims.Items[i]); ok {
			c.queue.WaitProvisionally(w)
		}
	}
	return nil
}

func (c *claims) watchClaims(ctx context.Context, informerCache ctrlcache.Cache) error {
	informer, err := informerCache.GetInformer(ctx, &v1alpha1.IPClaim{}, ctrlcache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(kubeutil.Handler(c.onClaimUpdate, c.onClaimDelete))
	if err != nil {
		return err
	}
	hasSynced := registration.HasSynced
	c.synced.Store(&hasSynced)
	return nil
}

// onClaimUpdate updates the queue and the ledger for a claim that was added or has changed.
func (c *claims) onClaimUpdate(obj *v1alpha1.IPClaim) {
	name := ipam.Name{Namespace: obj.Namespace, Name: obj.Name}
	holder := convert.HolderOfClaim(name)
	if record := obj.Spec.AllocationName; record != "" {
		c.queue.Leave(holder)
		c.ledger.SetClaimed(ipam.Name{Namespace: obj.Namespace, Name: record}, true)
		if !obj.DeletionTimestamp.IsZero() {
			c.ledger.MarkLeaving(ipam.Name{Namespace: obj.Namespace, Name: record})
		}
		return
	}
	if w, ok := waiterOf(obj); ok {
		c.queue.Wait(w)
	} else {
		c.queue.Leave(holder)
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

// waitReason returns the reason to wait that the conditions of a claim report. Every replica reads
// it from there, whichever serves the claim.
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
func (c *claims) onClaimDelete(obj *v1alpha1.IPClaim) {
	c.queue.Leave(convert.HolderOfClaim(ipam.Name{Namespace: obj.Namespace, Name: obj.Name}))
	if record := obj.Spec.AllocationName; record != "" {
		c.ledger.SetClaimed(ipam.Name{Namespace: obj.Namespace, Name: record}, false)
	}
}
