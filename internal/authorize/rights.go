// Package authorize asks the API server's authorizer whether a user can use a pool.
//
// The right is judged with the user that creates an object: only the review of a create names
// that user ([Rights]). The verdict is kept in an annotation of the object. For objects that a
// service account created, the leader asks again while they wait ([Asker]): the name is in
// another annotation, and the groups of a service account follow from its name. The user of an
// update is never asked for: it may be a controller with more rights than the creator has.
//
// Only the operator writes both annotations. The webhooks replace them whenever an object is
// created, and the ValidatingAdmissionPolicy cadastre-filled-in keeps updates from changing them.
package authorize

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
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

// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// The time for which answers are remembered, and their number.
const (
	rememberFor = 5 * time.Second
	remember    = 4096
)

// Rights asks the API server's authorizer whether a user has the verb use on a pool or the verb
// provision on a class, or can create IPClaims. Answers are remembered for seconds. Its methods may be
// called concurrently.
type Rights struct {
	client  client.Client
	answers *utilcache.LRUExpireCache
}

// NewRights returns Rights that remember no answer yet.
func NewRights(c client.Client) *Rights {
	return &Rights{client: c, answers: utilcache.NewLRUExpireCache(remember)}
}

// MayUse reports whether the user has the verb use on the pool, a cluster-scoped one.
func (u *Rights) MayUse(ctx context.Context, user authenticationv1.UserInfo, pool ipam.PoolKey) (bool, error) {
	return u.ask(ctx, user, authorizationv1.ResourceAttributes{Resource: "ippools", Verb: "use", Name: pool.Name})
}

// MayProvision reports whether the user has the verb provision on a class, or on all of them if the name
// is empty.
func (u *Rights) MayProvision(ctx context.Context, user authenticationv1.UserInfo, class string) (bool, error) {
	return u.ask(ctx, user, authorizationv1.ResourceAttributes{Resource: "ipclasses", Verb: "provision", Name: class})
}

// MayClaim reports whether the user has the verb create on IPClaims in the namespace.
func (u *Rights) MayClaim(ctx context.Context, user authenticationv1.UserInfo, namespace string) (bool, error) {
	return u.ask(ctx, user, authorizationv1.ResourceAttributes{Resource: "ipclaims", Verb: "create", Namespace: namespace})
}

// ask asks whether the user has a right on resources of our group.
func (u *Rights) ask(ctx context.Context, user authenticationv1.UserInfo, right authorizationv1.ResourceAttributes) (bool, error) {
	right.Group, right.Version = v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra(user), ResourceAttributes: &right,
	}}
	question, err := json.Marshal(review.Spec) // everything that the authorizer is asked with
	if err != nil {
		return false, err
	}
	if answer, ok := u.answers.Get(string(question)); ok {
		return answer.(bool), nil
	}
	if err := u.client.Create(ctx, review); err != nil {
		where := strconv.Quote(right.Name)
		if right.Namespace != "" {
			where = "in namespace " + right.Namespace
		}
		return false, fmt.Errorf("asking whether %s may %s %s %s: %w", user.Username, right.Verb, right.Resource, where, err)
	}
	u.answers.Add(string(question), review.Status.Allowed, rememberFor)
	return review.Status.Allowed, nil
}

func extra(user authenticationv1.UserInfo) map[string]authorizationv1.ExtraValue {
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	return extra
}

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
