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
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
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
