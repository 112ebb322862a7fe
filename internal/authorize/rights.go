package authorize

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// The time for which answers are remembered, and their number.
const (
	rememberFor = 5 * time.Second
	remember    = 4096
)

// Rights asks the API server's authorizer whether a user has the verb use on a
// pool. Answers are remembered for seconds. Its methods may be called concurrently.
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
	key := questionOf(user, pool)
	if answer, ok := u.answers.Get(key); ok {
		return answer.(bool), nil
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra(user),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version,
			Resource: "ippools", Verb: "use", Name: pool.Name,
		},
	}}
	if err := u.client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("asking whether %s may use %s: %w", user.Username, pool, err)
	}
	u.answers.Add(key, review.Status.Allowed, rememberFor)
	return review.Status.Allowed, nil
}

// questionOf returns the key under which an answer is remembered: everything that the
// authorizer is asked with. The lengths keep the parts apart.
func questionOf(user authenticationv1.UserInfo, pool ipam.PoolKey) string {
	parts := append([]string{pool.String(), user.Username, user.UID, strconv.Itoa(len(user.Groups))}, user.Groups...)
	for _, key := range slices.Sorted(maps.Keys(user.Extra)) {
		parts = append(append(parts, key, strconv.Itoa(len(user.Extra[key]))), user.Extra[key]...)
	}
	return strings.Join(parts, "\x00")
}

func extra(user authenticationv1.UserInfo) map[string]authorizationv1.ExtraValue {
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	return extra
}
