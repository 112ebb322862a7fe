package requester

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

var (
	alice = authenticationv1.UserInfo{
		Username: "alice", UID: "1", Groups: []string{"red", "system:authenticated"},
		Extra: map[string]authenticationv1.ExtraValue{"scopes": {"a", "b"}},
	}
	claimA = Subject{Kind: "IPClaim", Namespace: "ns", Name: "a", Pool: "p"}
)

// world is an API server that has objects, and says who may use pools.
type world struct {
	client.WithWatch
	may   bool
	asked int
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	w := &world{}
	w.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, to client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			review, ok := obj.(*authorizationv1.SubjectAccessReview)
			if !ok {
				return to.Create(ctx, obj, opts...)
			}
			w.asked++
			review.Status.Allowed = w.may && review.Spec.User == alice.Username && len(review.Spec.Groups) == 2 && len(review.Spec.Extra) == 1
			return nil
		},
	}).Build()
	return w
}

func (w *world) ring(t *testing.T) *Ring {
	t.Helper()
	r := NewRing(w, w, "cadastre-system", clocktesting.NewFakePassiveClock(time.Now()))
	if err := r.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func sealed(t *testing.T, r *Ring, of Subject) string {
	t.Helper()
	text, err := r.Seal(alice, of)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestASealedUserIsOpenedByEveryReplicaAndReadByNobody(t *testing.T) {
	w := newWorld(t)
	text := sealed(t, w.ring(t), claimA)
	if strings.Contains(text, "alice") || text == sealed(t, w.ring(t), claimA) {
		t.Errorf("it tells something: %s", text)
	}
	got, err := w.ring(t).Open(t.Context(), text, claimA)
	if err != nil || !reflect.DeepEqual(got, alice) {
		t.Errorf("%+v, %v, want %+v", got, err, alice)
	}
}

func TestASealedUserIsWorthNothingElsewhere(t *testing.T) {
	r := newWorld(t).ring(t)
	text := sealed(t, r, claimA)
	other := func(change func(*Subject)) Subject {
		s := claimA
		change(&s)
		return s
	}
	for name, of := range map[string]Subject{
		"another claim":     other(func(s *Subject) { s.Name = "b" }),
		"another namespace": other(func(s *Subject) { s.Namespace = "other" }),
		"another pool":      other(func(s *Subject) { s.Pool = "q" }),
		"another kind":      other(func(s *Subject) { s.Kind = "IPAddressClaim" }),
		"shifted parts":     {Kind: "IPClaim", Namespace: "ns\x00a", Name: "p", Pool: ""},
	} {
		if got, err := r.Open(t.Context(), text, of); err == nil || got.Username != "" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, forged := range []string{"", "alice", "v1.x.y", text + "A", strings.Replace(text, "v1.", "v2.", 1), text[:len(text)-2]} {
		if _, err := r.Open(t.Context(), forged, claimA); err == nil {
			t.Errorf("%q is opened", forged)
		}
	}
	foreign := sealed(t, newWorld(t).ring(t), claimA)
	if _, err := r.Open(t.Context(), foreign, claimA); !errors.Is(err, ErrNoKey) {
		t.Errorf("a key of somebody else: %v", err)
	}
}

func TestTheRingKeepsItsKeys(t *testing.T) {
	w := newWorld(t)
	r := w.ring(t)
	text := sealed(t, r, claimA)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "cadastre-system", Name: SecretName}}

	if err := w.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil || len(secret.Data) != 1 {
		t.Fatalf("%d keys: %v", len(secret.Data), err)
	}
	secret.Data["99991231T000000Z"] = []byte(strings.Repeat("k", keyLength))
	if err := w.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	second := sealed(t, w.ring(t), claimA)
	if strings.Split(second, ".")[1] == strings.Split(text, ".")[1] {
		t.Error("the newest key does not seal")
	}
	for _, old := range []string{text, second} { // r has yet to read the second key
		if _, err := r.Open(t.Context(), old, claimA); err != nil {
			t.Errorf("after a new key: %v", err)
		}
	}
	if err := w.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if err := r.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.ring(t).Open(t.Context(), text, claimA); err != nil {
		t.Errorf("a Secret that was deleted loses its keys: %v", err)
	}
}

func TestSealSaysWhereItCannot(t *testing.T) {
	w := newWorld(t)
	if _, err := NewRing(w, w, "ns", clocktesting.NewFakePassiveClock(time.Now())).Seal(alice, claimA); !errors.Is(err, ErrNoKey) {
		t.Errorf("without a key: %v", err)
	}
	crowd := alice
	crowd.Groups = []string{strings.Repeat("g", MaxSealed)}
	if _, err := w.ring(t).Seal(crowd, claimA); err == nil || !strings.Contains(err.Error(), "too many groups") {
		t.Errorf("too large: %v", err)
	}
}

func TestTheAskerAsksWithBackOffAndGrantsOnce(t *testing.T) {
	w := newWorld(t)
	r := w.ring(t)
	claim := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "a", UID: "uid", Annotations: map[string]string{v1alpha1.AnnotationRequester: sealed(t, r, claimA), "kept": "yes"},
	}}
	if err := w.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakePassiveClock(time.Now())
	a := NewAsker(r, NewRights(w), w, clock)
	pool := ipam.PoolNamed("p")
	for _, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		want := time.Duration(seconds) * time.Second
		granted, after, err := a.Ask(t.Context(), claim, "IPClaim", pool)
		if granted || after != want || err != nil {
			t.Fatalf("%v, %v, %v; want to ask again after %v", granted, after, err, want)
		}
		if _, early, _ := a.Ask(t.Context(), claim, "IPClaim", pool); early != after {
			t.Errorf("asked early, it says %v, want %v", early, after)
		}
		clock.SetTime(clock.Now().Add(after))
	}
	w.may, a.rights = true, NewRights(w) // what is remembered is forgotten after seconds
	granted, _, err := a.Ask(t.Context(), claim, "IPClaim", pool)
	if !granted || err != nil {
		t.Fatalf("%v, %v, want that it is granted", granted, err)
	}
	if len(a.asked) != 0 {
		t.Errorf("remembered still: %v", a.asked)
	}
	stored := &v1alpha1.IPClaim{}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(claim), stored); err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{v1alpha1.AnnotationUseGranted: "p", "kept": "yes"}; !reflect.DeepEqual(stored.Annotations, want) {
		t.Errorf("annotations %v, want %v", stored.Annotations, want)
	}
	if granted, after, err := a.Ask(t.Context(), stored, "IPClaim", pool); granted || after != 0 || err != nil {
		t.Errorf("with nobody to ask about: %v, %v, %v", granted, after, err)
	}
}

func TestWhoAskedIsForgottenAndNothingElse(t *testing.T) {
	stored := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "a", Annotations: map[string]string{v1alpha1.AnnotationRequester: "v1", "not-in-the-cache": "stays"},
	}}
	w := newWorld(t, stored)
	cached := stored.DeepCopy()
	delete(cached.Annotations, "not-in-the-cache")
	before := cached.DeepCopy()
	cached.Spec.ClassName = "gold"
	if err := w.Patch(t.Context(), cached, Forget(client.MergeFrom(before))); err != nil {
		t.Fatal(err)
	}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(stored), stored); err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"not-in-the-cache": "stays"}; !reflect.DeepEqual(stored.Annotations, want) || stored.Spec.ClassName != "gold" {
		t.Errorf("annotations %v, class %q; want %v, gold", stored.Annotations, stored.Spec.ClassName, want)
	}
}

func TestTheAskerDoesNotGrantByACopy(t *testing.T) {
	w := newWorld(t)
	w.may = true
	r := w.ring(t)
	a := NewAsker(r, NewRights(w), w, clocktesting.NewFakePassiveClock(time.Now()))
	copied := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "b", UID: "b", Annotations: map[string]string{v1alpha1.AnnotationRequester: sealed(t, r, claimA)},
	}}
	if granted, after, err := a.Ask(t.Context(), copied, "IPClaim", ipam.PoolNamed("p")); granted || after == 0 || err != nil || w.asked != 0 {
		t.Errorf("%v, %v, %v, asked %d times", granted, after, err, w.asked)
	}
}
