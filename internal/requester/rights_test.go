package requester

import (
	"context"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// One user may act with other groups within the seconds for which an answer is
// remembered: with another token, or impersonated.
func TestARightOfAGroupIsNotThatOfTheUser(t *testing.T) {
	asked := 0
	store := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
			asked++
			review := obj.(*authorizationv1.SubjectAccessReview)
			review.Status.Allowed = len(review.Spec.Groups) > 0 && review.Spec.Groups[0] == "platform"
			return nil
		},
	}).Build()
	u := NewRights(store)
	for i, c := range []struct {
		groups []string
		want   bool
		asked  int
	}{
		{[]string{"platform"}, true, 1}, {[]string{"tenants"}, false, 2}, {nil, false, 3},
		{[]string{"platform"}, true, 3}, {[]string{"tenants", "platform"}, false, 4},
	} {
		may, err := u.MayUse(t.Context(), authenticationv1.UserInfo{Username: "jane", Groups: c.groups}, ipam.PoolNamed("p"))
		if err != nil || may != c.want || asked != c.asked {
			t.Errorf("%d: with groups %v she may use it: %t, after %d questions (%v); want %t after %d", i, c.groups, may, asked, err, c.want, c.asked)
		}
	}
}

// One user may act with a narrower token: what that may is in its extra fields.
func TestARightOfATokenIsNotThatOfTheUser(t *testing.T) {
	store := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
			review := obj.(*authorizationv1.SubjectAccessReview)
			review.Status.Allowed = len(review.Spec.Extra["scopes"]) == 0
			return nil
		},
	}).Build()
	u := NewRights(store)
	user := authenticationv1.UserInfo{Username: "jane", Groups: []string{"scopes", "1"}}
	for _, c := range []struct {
		extra map[string]authenticationv1.ExtraValue
		want  bool
	}{{nil, true}, {map[string]authenticationv1.ExtraValue{"scopes": {"read"}}, false}, {nil, true}} {
		user.Extra = c.extra
		if may, err := u.MayUse(t.Context(), user, ipam.PoolNamed("p")); err != nil || may != c.want {
			t.Errorf("with %v she may use it: %t, %v; want %t", c.extra, may, err, c.want)
		}
	}
}
