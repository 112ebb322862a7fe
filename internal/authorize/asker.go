package authorize

import (
	"context"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// The right of a waiting object is asked for again after soonest, then after twice as long each
// time, at most latest.
const minDelay, maxDelay = time.Second, time.Minute

// Asker asks again whether the service accounts that created waiting objects can use their
// pools. Only the leader asks. Its methods may be called concurrently, for one object at a time.
type Asker struct {
	rights *Rights
	client client.Client
	clock  clock.PassiveClock

	mu sync.Mutex
	// attempts holds the attempt for each object, and swept is the time when the attempts that are
	// not due any more were dropped.
	attempts map[types.UID]attempt
	swept    time.Time
}

// attempt holds the time of the next question about an object, and its distance from the last
// one.
type attempt struct {
	next  time.Time
	delay time.Duration
}

// NewAsker returns an Asker that writes through the client.
func NewAsker(rights *Rights, c client.Client, clock clock.PassiveClock) *Asker {
	return &Asker{rights: rights, client: c, clock: clock, attempts: map[types.UID]attempt{}}
}

// Ask asks whether the service account that created the object can use the pool now. If so, it
// notes that in the object, and returns the grant. Otherwise it is to be called again after the
// returned time, which is zero if no service account created the object.
func (a *Asker) Ask(ctx context.Context, obj client.Object, pool ipam.Pool) (grant *ipam.Grant, delay time.Duration, err error) {
	account, ok := serviceAccount(obj.GetAnnotations()[v1alpha1.AnnotationRequestedBy])
	if !ok {
		return nil, 0, nil
	}
	if remaining := a.remainingDelay(obj.GetUID()); remaining > 0 {
		return nil, remaining, nil
	}
	isAllowed, err := a.rights.MayUse(ctx, account, pool.Key)
	if err != nil || !isAllowed {
		return nil, a.nextDelay(obj.GetUID()), err
	}
	grant = &ipam.Grant{PoolUID: pool.Spec.UID}
	if err := a.note(ctx, obj, pool.Key, *grant); err != nil {
		return nil, 0, err
	}
	a.forget(obj.GetUID())
	return grant, 0, nil
}

// serviceAccount returns the service account of a user name, with the groups of all service
// accounts of its namespace; false for the name of another user.
func serviceAccount(name string) (account authenticationv1.UserInfo, ok bool) {
	namespace, _, err := serviceaccount.SplitUsername(name)
	if err != nil {
		return account, false
	}
	groups := append(serviceaccount.MakeGroupNames(namespace), user.AllAuthenticated)
	return authenticationv1.UserInfo{Username: name, Groups: groups}, true
}

// note writes the grant into the object, if the object has not changed since it was read.
func (a *Asker) note(ctx context.Context, obj client.Object, pool ipam.PoolKey, grant ipam.Grant) error {
	before := obj.DeepCopyObject().(client.Object)
	annotations := obj.GetAnnotations()
	annotations[v1alpha1.AnnotationUseGranted] = convert.GrantText(pool, grant)
	obj.SetAnnotations(annotations)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := a.client.Patch(ctx, obj, WithoutRequester(obj, patch)); err != nil {
		return fmt.Errorf("writing that %s may be used: %w", pool, err)
	}
	return nil
}

// forget drops the attempts for an object that does not wait any more.
func (a *Asker) forget(object types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.attempts, object)
}

func (a *Asker) remainingDelay(object types.UID) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.attempts[object].next.Sub(a.clock.Now())
}

// nextDelay records that the right of an object was asked for, and returns the time until the next
// question.
func (a *Asker) nextDelay(object types.UID) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	delay := min(max(2*a.attempts[object].delay, minDelay), maxDelay)
	a.sweep(now)
	a.attempts[object] = attempt{next: now.Add(delay), delay: delay}
	return delay
}

// sweep forgets objects that were due long ago: they are gone, or do not wait any more.
func (a *Asker) sweep(now time.Time) {
	if now.Sub(a.swept) < maxDelay {
		return
	}
	a.swept = now
	for object, attempt := range a.attempts {
		if now.Sub(attempt.next) > maxDelay {
			delete(a.attempts, object)
		}
	}
}
