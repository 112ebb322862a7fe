package authorize

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

var alice = authenticationv1.UserInfo{
	Username: "alice", UID: "1", Groups: []string{"red", "system:authenticated"},
	Extra: map[string]authenticationv1.ExtraValue{"scopes": {"a", "b"}},
}

func TestRightsAskForTheVerbUse(t *testing.T) {
	s := newServer(t)
	u := NewRights(s)
	s.allowed, s.reviewErr = true, errDown
	if may, err := u.MayUse(t.Context(), alice, ipam.PoolNamed("p")); may || !errors.Is(err, errDown) || !strings.Contains(err.Error(), "asking whether alice may use") {
		t.Errorf("while nothing answers: %t, %v", may, err)
	}
	s.reviewErr = nil
	for range 2 { // an error is not remembered, an answer is
		if may, err := u.MayUse(t.Context(), alice, ipam.PoolNamed("p")); !may || err != nil {
			t.Errorf("%t, %v", may, err)
		}
	}
	if may, err := u.MayUse(t.Context(), alice, ipam.PoolNamed("q")); !may || err != nil || len(s.reviews) != 3 {
		t.Fatalf("of another pool: %t, %v, asked %d times", may, err, len(s.reviews))
	}
	asked, is := s.reviews[1], authorizationv1.ResourceAttributes{Group: "ipam.cadastre.dev", Version: "v1alpha1", Resource: "ippools", Verb: "use", Name: "p"}
	if *asked.ResourceAttributes != is || asked.User != "alice" || asked.UID != "1" || !slices.Equal(asked.Groups, alice.Groups) || !slices.Equal(asked.Extra["scopes"], []string{"a", "b"}) {
		t.Errorf("asked %+v of %+v", asked.ResourceAttributes, asked)
	}
	if s.reviews[2].ResourceAttributes.Name != "q" {
		t.Errorf("asked of %s", s.reviews[2].ResourceAttributes.Name)
	}
}

// Different questions have different answers, whatever the parts contain.
func TestDistinctQuestionsHaveDistinctAnswers(t *testing.T) {
	s := newServer(t)
	rights := NewRights(s)
	isNew := func(pool string, change func(*authenticationv1.UserInfo)) bool {
		user, before := authenticationv1.UserInfo{Username: "jane", UID: "1"}, len(s.reviews)
		change(&user)
		if _, err := rights.MayUse(t.Context(), user, ipam.PoolNamed(pool)); err != nil {
			t.Fatal(err)
		}
		return len(s.reviews) > before
	}
	extra := func(pairs ...string) func(*authenticationv1.UserInfo) {
		return func(u *authenticationv1.UserInfo) {
			u.Extra = map[string]authenticationv1.ExtraValue{}
			for i := 0; i < len(pairs); i += 2 {
				u.Extra[pairs[i]] = append(u.Extra[pairs[i]], pairs[i+1])
			}
		}
	}
	for name, change := range map[string]func(*authenticationv1.UserInfo){
		"alone":         func(*authenticationv1.UserInfo) {},
		"another name":  func(u *authenticationv1.UserInfo) { u.Username = "joe" },
		"another UID":   func(u *authenticationv1.UserInfo) { u.UID = "2" },
		"a group":       func(u *authenticationv1.UserInfo) { u.Groups = []string{"a"} },
		"two groups":    func(u *authenticationv1.UserInfo) { u.Groups = []string{"a", "b"} },
		"a and 1 group": func(u *authenticationv1.UserInfo) { u.Groups = []string{"a"}; extra("b", "c")(u) },
		"an extra":      extra("a", "b"),
		"another value": extra("a", "c"),
		"two values":    extra("a", "b", "a", "c"),
		"two extras":    extra("a", "b", "c", "d"),
	} {
		if !isNew("p", change) {
			t.Errorf("%s is answered as another question", name)
		}
	}
	if !isNew("q", func(*authenticationv1.UserInfo) {}) {
		t.Error("another pool is answered as another question")
	}
	for range 20 { // whatever the order of a map
		if isNew("p", extra("a", "b", "c", "d")) || isNew("p", extra("c", "d", "a", "b")) {
			t.Fatal("one question is asked in two ways")
		}
	}
}

// One user may act with other groups within the seconds for which an answer is
// remembered: with another token, or impersonated.
func TestRightOfGroupIsNotRightOfUser(t *testing.T) {
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
func TestRightOfTokenIsNotRightOfUser(t *testing.T) {
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
