package authorize

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
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

// account is the service account that created the claim, and poolP the pool that it names.
const account = "system:serviceaccount:team:deployer"

var poolP = ipam.Pool{Key: ipam.PoolNamed("p"), Spec: ipam.Revision{UID: "1-2-3"}}

// newAsker returns an Asker for a claim of a user that waits for the right to use the pool.
func newAsker(t *testing.T, user string) (s *server, a *Asker, claim *v1alpha1.IPClaim) {
	t.Helper()
	claim = &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "a", UID: "uid", Annotations: map[string]string{v1alpha1.AnnotationRequestedBy: user},
	}}
	s = newServer(t)
	if err := s.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	return s, NewAsker(NewRights(s), s, clocktesting.NewFakePassiveClock(time.Now())), claim
}

func TestAskerAsksWithBackOffAndGrantsOnce(t *testing.T) {
	s, a, claim := newAsker(t, account)
	clock := a.clock.(*clocktesting.FakePassiveClock)
	for _, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		want := time.Duration(seconds) * time.Second
		grant, after, err := a.Ask(t.Context(), claim, poolP)
		if grant != nil || after != want || err != nil {
			t.Fatalf("%v, %v, %v; want to ask again after %v", grant, after, err, want)
		}
		if _, early, _ := a.Ask(t.Context(), claim, poolP); early != after {
			t.Errorf("asked early, the time is %v, want %v", early, after)
		}
		clock.SetTime(clock.Now().Add(after))
	}
	s.allowed, a.rights = true, NewRights(s) // with an empty cache
	grant, after, err := a.Ask(t.Context(), claim, poolP)
	if grant == nil || grant.PoolUID != "1-2-3" || after != 0 || err != nil {
		t.Fatalf("%+v, %v, %v; want the right to use the pool", grant, after, err)
	}
	if attempts := a.attempts.Keys(); len(attempts) > 0 {
		t.Errorf("the attempts are still kept: %v", attempts)
	}
	want := map[string]string{v1alpha1.AnnotationUseGranted: "p/1-2-3", v1alpha1.AnnotationRequestedBy: account}
	if got := s.stored(t, claim).Annotations; !maps.Equal(got, want) {
		t.Errorf("the annotations are %v, want %v", got, want)
	}
}

func TestAskerAsksForServiceAccountsWithTheirGroups(t *testing.T) {
	s, a, claim := newAsker(t, account)
	if _, _, err := a.Ask(t.Context(), claim, poolP); err != nil || len(s.reviews) != 1 {
		t.Fatalf("%d reviews, %v", len(s.reviews), err)
	}
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:team", "system:authenticated"}
	if asked := s.reviews[0]; asked.User != account || !slices.Equal(asked.Groups, groups) || asked.ResourceAttributes.Name != "p" {
		t.Errorf("asked for %+v of %+v, want the groups %v", asked.ResourceAttributes, asked, groups)
	}
}

func TestAskerDoesNotAskForOtherUsers(t *testing.T) {
	for _, user := range []string{"", "alice", "system:admin", "system:serviceaccount:team", "system:serviceaccount::deployer", "system:serviceaccount:a:b:c", "x" + account} {
		s, a, claim := newAsker(t, user)
		s.allowed = true
		if grant, after, err := a.Ask(t.Context(), claim, poolP); grant != nil || after != 0 || err != nil || len(s.reviews) > 0 {
			t.Errorf("user %q: %v, %v, %v, after %d reviews; want no right and no other question", user, grant, after, err, len(s.reviews))
		}
	}
}

func TestAskerReportsFailures(t *testing.T) {
	s, a, claim := newAsker(t, account)
	s.allowed, s.reviewErr = true, errDown
	if grant, after, err := a.Ask(t.Context(), claim, poolP); grant != nil || after != minDelay || !errors.Is(err, errDown) {
		t.Errorf("without an answer: %v, %v, %v", grant, after, err)
	}
	a.attempts.Remove(claim.UID) // asks at once
	s.reviewErr, s.patchErr = nil, errDown
	if grant, after, err := a.Ask(t.Context(), claim.DeepCopy(), poolP); grant != nil || after != 0 || !errors.Is(err, errDown) || !strings.Contains(err.Error(), "may be used") {
		t.Errorf("if the patch fails: %v, %v, %v", grant, after, err)
	}
	s.patchErr = nil
	stale := claim.DeepCopy()
	stale.ResourceVersion = "999"
	if grant, _, err := a.Ask(t.Context(), stale, poolP); grant != nil || err == nil {
		t.Errorf("with another version than the stored one: %v, %v", grant, err)
	}
	if grant, after, err := a.Ask(t.Context(), claim, poolP); grant == nil || after != 0 || err != nil || len(a.attempts.Keys()) != 0 {
		t.Errorf("at last: %v, %v, %v, attempts %v", grant, after, err, a.attempts.Keys())
	}
}

func TestAskerRemovesFormerRequester(t *testing.T) {
	s, a, claim := newAsker(t, account)
	claim.Annotations[v1alpha1.AnnotationRequester] = "v1.x.y"
	if err := s.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	s.allowed = true
	if grant, _, err := a.Ask(t.Context(), claim, poolP); grant == nil || err != nil {
		t.Fatalf("%v, %v", grant, err)
	}
	if _, has := s.stored(t, claim).Annotations[v1alpha1.AnnotationRequester]; has {
		t.Error("the encrypted requester is still there")
	}
}

func TestAskerDropsAttemptsForObjectsThatDoNotWait(t *testing.T) {
	_, a, claim := newAsker(t, account)
	clock := a.clock.(*clocktesting.FakePassiveClock)
	for _, step := range []struct{ pass, want time.Duration }{
		{0, minDelay},
		{minDelay + maxDelay, 2 * minDelay},                 // due for a minute, and not for longer
		{2*minDelay + maxDelay + time.Nanosecond, minDelay}, // forgotten
	} {
		clock.SetTime(clock.Now().Add(step.pass))
		if _, after, err := a.Ask(t.Context(), claim, poolP); after != step.want || err != nil {
			t.Errorf("after %v it is asked again after %v, %v; want %v", step.pass, after, err, step.want)
		}
	}
	clock.SetTime(clock.Now().Add(minDelay + maxDelay + time.Nanosecond))
	if attempts := a.attempts.Keys(); len(attempts) > 0 {
		t.Errorf("the attempts are %v", attempts)
	}
}

// broken is a patch without data, and odd one with other data.
type broken struct{ client.Patch }

func (broken) Data(client.Object) ([]byte, error) { return nil, errDown }

type odd struct {
	client.Patch
	data string
}

func (o odd) Data(client.Object) ([]byte, error) { return []byte(o.data), nil }

func TestWithoutRequesterChangesPatchesOfObjectsThatHaveIt(t *testing.T) {
	former := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationRequester: ""}}}
	if _, err := WithoutRequester(former, broken{}).Data(nil); !errors.Is(err, errDown) {
		t.Errorf("without data: %v", err)
	}
	for _, data := range []string{"[", `{"metadata":1}`} {
		if _, err := WithoutRequester(former, odd{data: data}).Data(nil); err == nil {
			t.Errorf("%s: no error", data)
		}
	}
	for obj, want := range map[*v1alpha1.IPClaim]string{
		former: `{"metadata":{"annotations":{"` + v1alpha1.AnnotationRequester + `":null}},"spec":{}}`,
		{}:     `{"spec":{}}`,
	} {
		if got, err := WithoutRequester(obj, odd{data: `{"spec":{}}`}).Data(nil); string(got) != want || err != nil {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}

// A cached object may lack annotations that the stored one has.
func TestWithoutRequesterKeepsOtherAnnotations(t *testing.T) {
	s, _, claim := newAsker(t, "")
	claim.Annotations = map[string]string{v1alpha1.AnnotationRequester: "v1", "not-in-the-cache": "stays"}
	if err := s.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	cached := claim.DeepCopy()
	delete(cached.Annotations, "not-in-the-cache")
	before := cached.DeepCopy()
	cached.Spec.ClassName = "gold"
	if err := s.Patch(t.Context(), cached, WithoutRequester(before, client.MergeFrom(before))); err != nil {
		t.Fatal(err)
	}
	stored := s.stored(t, claim)
	if want := map[string]string{"not-in-the-cache": "stays"}; !maps.Equal(stored.Annotations, want) || stored.Spec.ClassName != "gold" {
		t.Errorf("annotations %v, class %q; want %v, gold", stored.Annotations, stored.Spec.ClassName, want)
	}
}
