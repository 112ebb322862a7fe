package allocator

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

const (
	// again is how long it takes until what failed is tried again, or it is looked
	// again whether something is there.
	again = 100 * time.Millisecond
	// waitersSeenWithin bounds the attempts to see who waits before all claims are seen.
	waitersSeenWithin = 10 * time.Second
)

// FeedClaims keeps the queue and the ledger's knowledge of claims up to date from
// the informer of a cache. There may be a hundred thousand claims, and few that
// wait: those are asked for first, so that blocks can be handed out, and nobody is
// overtaken, before the others are known. It returns when they are, or ctx is done.
// To be called once, after Feed.
func (a *Allocator) FeedClaims(ctx context.Context, live client.Reader, from ctrlcache.Cache) {
	err := wait.PollUntilContextTimeout(ctx, again, waitersSeenWithin, true, func(ctx context.Context) (bool, error) {
		return a.tried(a.joinWaiters(ctx, live)), nil
	})
	if err == nil {
		a.fedLock.Lock()
		a.waitersSeen = true
		a.fedLock.Unlock()
	}
	// An informer that is there before its cache starts has everybody wait for it.
	if !from.WaitForCacheSync(ctx) {
		return
	}
	err = wait.PollUntilContextCancel(ctx, again, true, func(ctx context.Context) (bool, error) {
		return a.tried(a.followClaims(ctx, from)), nil
	})
	if err != nil {
		return
	}
	err = wait.PollUntilContextCancel(ctx, again, true, func(context.Context) (bool, error) { return a.KnowsClaims(), nil })
	if err != nil {
		return
	}
	a.ledger.ClaimsKnown()
	for _, left := range a.queue.LeaveProvisional() { // they were gone when the watch began
		a.hasLeft(left)
	}
}

// tried reports whether there was no error, and logs it otherwise.
func (a *Allocator) tried(err error) bool {
	if err != nil {
		a.log.Error(err, "Could not watch IPClaims; retrying")
	}
	return err == nil
}

// joinWaiters keeps a place for each claim that has no record yet. As for any first list
// of a cache, what the API server has in its own is good enough; it would sometimes
// read all claims from etcd to be sure, which takes it many times as long.
func (a *Allocator) joinWaiters(ctx context.Context, live client.Reader) error {
	claims := &v1alpha1.IPClaimList{}
	cached := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
	if err := live.List(ctx, claims, client.MatchingFields{"spec.allocationName": ""}, cached); err != nil {
		return fmt.Errorf("listing IPClaims that wait: %w", err)
	}
	for i := range claims.Items {
		if w, ok := waiting(&claims.Items[i]); ok && a.Serves(w.Holder) {
			a.waitProvisionally(w)
		}
	}
	return nil
}

func (a *Allocator) followClaims(ctx context.Context, from ctrlcache.Cache) error {
	informer, err := from.GetInformer(ctx, &v1alpha1.IPClaim{}, ctrlcache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(handler(a.takeClaim, a.loseClaim))
	if err != nil {
		return err
	}
	a.fedLock.Lock()
	defer a.fedLock.Unlock()
	a.claims = registration.HasSynced
	return nil
}

// KnowsClaims reports whether every IPClaim has been seen once. Until then a cache of
// them has its readers wait, and records seem unclaimed that are not.
func (a *Allocator) KnowsClaims() bool {
	a.fedLock.RLock()
	defer a.fedLock.RUnlock()
	return a.claims()
}

// unclaimedLimit is how many records of a namespace may be unclaimed; 0, which is any
// number, while it is not known which of them are.
func (a *Allocator) unclaimedLimit() int {
	if !a.KnowsClaims() {
		return 0
	}
	return a.limit
}
