package authorize

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
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

// mostAttempts bounds the number of objects whose attempts are remembered. The others are asked for
// as if for the first time.
const mostAttempts = 1 << 16

// Asker asks again whether the service accounts that created waiting objects can use their
// pools. Only the leader asks. Its methods may be called concurrently, for one object at a time.
type Asker struct {
	rights *Rights
	client client.Client
	clock  clock.PassiveClock
	// attempts holds the last attempt for each object, by UID, until it is due for longer than maxDelay:
	// then the object is gone, or does not wait any more.
	attempts *utilcache.LRUExpireCache
}

// attempt holds the time of the next question about an object, and its distance from the last
// one.
type attempt struct {
	next  time.Time
	delay time.Duration
}

// NewAsker returns an Asker that writes through the client.
func NewAsker(rights *Rights, c client.Client, clock clock.PassiveClock) *Asker {
	return &Asker{rights: rights, client: c, clock: clock, attempts: utilcache.NewLRUExpireCacheWithClock(mostAttempts, clock)}
}

// Ask asks whether the service account that created the object can use the pool now. If so, it
// notes that in the object, and returns the grant. Otherwise it is to be called again after the
// returned time, which is zero if no service account created the object.
func (a *Asker) Ask(ctx context.Context, obj client.Object, pool ipam.Pool) (grant *ipam.Grant, delay time.Duration, err error) {
	account, ok := serviceAccount(obj.GetAnnotations()[v1alpha1.AnnotationRequestedBy])
	if !ok {
		return nil, 0, nil
	}
	last, _ := a.attempts.Get(obj.GetUID())
	previous, _ := last.(attempt)
	if remaining := previous.next.Sub(a.clock.Now()); remaining > 0 {
		return nil, remaining, nil
	}
	isAllowed, err := a.rights.MayUse(ctx, account, pool.Key)
	if err != nil || !isAllowed {
		delay = min(max(2*previous.delay, minDelay), maxDelay)
		a.attempts.Add(obj.GetUID(), attempt{next: a.clock.Now().Add(delay), delay: delay}, delay+maxDelay)
		return nil, delay, err
	}
	grant = &ipam.Grant{PoolUID: pool.Spec.UID}
	if err := a.note(ctx, obj, pool.Key, *grant); err != nil {
		return nil, 0, err
	}
	a.attempts.Remove(obj.GetUID())
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

// WithoutRequester returns a merge patch of the object that also removes the encrypted creator
// which former versions kept in an annotation, if the object has it, and no other annotation. A
// cached object may lack annotations that the stored one has: if the last annotation that it
// knows were removed, the difference of two objects would remove them all.
func WithoutRequester(obj client.Object, merge client.Patch) client.Patch {
	if _, ok := obj.GetAnnotations()[v1alpha1.AnnotationRequester]; !ok {
		return merge
	}
	return withoutRequester{merge}
}

type withoutRequester struct{ client.Patch }

// Data implements client.Patch.
func (p withoutRequester) Data(obj client.Object) ([]byte, error) {
	data, err := p.Patch.Data(obj)
	if err != nil {
		return nil, err
	}
	changes := map[string]any{}
	if err := json.Unmarshal(data, &changes); err != nil {
		return nil, err
	}
	if err := unstructured.SetNestedField(changes, nil, "metadata", "annotations", v1alpha1.AnnotationRequester); err != nil {
		return nil, err
	}
	return json.Marshal(changes)
}
