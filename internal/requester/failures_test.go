package requester

import (
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

var errDown = errors.New("the API server is down")

// failing is the world with calls that fail while their error is set, and that are counted.
type failing struct {
	client.WithWatch
	get, apply, patch, review error
	gets, applies             int
	reviews                   []authorizationv1.SubjectAccessReviewSpec
}

func newFailing(t *testing.T, objects ...client.Object) *failing {
	t.Helper()
	f := &failing{}
	f.WithWatch = interceptor.NewClient(newWorld(t, objects...).WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, to client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if f.gets++; f.get != nil {
				return f.get
			}
			return to.Get(ctx, key, obj, opts...)
		},
		Apply: func(ctx context.Context, to client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if f.applies++; f.apply != nil {
				return f.apply
			}
			return to.Apply(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, to client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if f.patch != nil {
				return f.patch
			}
			return to.Patch(ctx, obj, patch, opts...)
		},
		Create: func(ctx context.Context, to client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			review, ok := obj.(*authorizationv1.SubjectAccessReview)
			if !ok {
				return to.Create(ctx, obj, opts...)
			}
			if f.reviews = append(f.reviews, review.Spec); f.review != nil {
				return f.review
			}
			review.Status.Allowed = true
			return nil
		},
	})
	return f
}

func (f *failing) keys(t *testing.T) []string {
	t.Helper()
	secret := &corev1.Secret{}
	if err := f.WithWatch.Get(t.Context(), client.ObjectKey{Namespace: "cadastre-system", Name: SecretName}, secret); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(secret.Data))
}

// secretWith is the Secret with such entries.
func secretWith(data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "cadastre-system", Name: SecretName}, Data: data}
}

func key(letter string) []byte { return []byte(strings.Repeat(letter, keyLength)) }

func TestLoadReportsWhatFailed(t *testing.T) {
	for name, c := range map[string]struct {
		objects []client.Object
		fail    func(*failing)
		want    string
	}{
		"the read":      {nil, func(f *failing) { f.get = errDown }, "reading Secret cadastre-system/" + SecretName},
		"the creation":  {nil, func(f *failing) { f.apply = errDown }, "making Secret cadastre-system/" + SecretName},
		"the first key": {nil, func(f *failing) { f.patch = errDown }, "writing Secret cadastre-system/" + SecretName},
		"an empty one":  {[]client.Object{secretWith(nil)}, func(f *failing) { f.patch = errDown }, "writing Secret cadastre-system/" + SecretName},
		"a key too short": {
			[]client.Object{secretWith(map[string][]byte{"a": []byte("short")})}, func(f *failing) { f.patch = errDown }, "writing Secret cadastre-system/" + SecretName,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFailing(t, c.objects...)
			c.fail(f)
			r := NewRing(f, f, "cadastre-system", clocktesting.NewFakePassiveClock(time.Now()))
			if err := r.Load(t.Context()); !errors.Is(err, errDown) || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if _, err := r.Seal(alice, claimA); !errors.Is(err, ErrNoKey) {
				t.Errorf("sealing: got %v, want that there is no key", err)
			}
		})
	}
}

func TestTheFirstKeyIsNamedByItsTime(t *testing.T) {
	f := newFailing(t)
	r := NewRing(f, f, "cadastre-system", clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))))
	if err := r.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := f.keys(t); !slices.Equal(got, []string{"20260102T020405Z"}) {
		t.Errorf("the Secret has %v", got)
	}
	if f.applies != 1 {
		t.Errorf("made %d times", f.applies)
	}
	if err := r.Load(t.Context()); err != nil || f.applies != 1 || len(f.keys(t)) != 1 {
		t.Errorf("loaded again: %v, made %d times, with the keys %v", err, f.applies, f.keys(t))
	}
}

// A key of the wrong length seals nothing, and is left where it is beside one that does.
func TestAKeyOfAnotherLengthIsNotUsed(t *testing.T) {
	f := newFailing(t, secretWith(map[string][]byte{"1": key("a"), "2": []byte("short")}))
	r := NewRing(f, f, "cadastre-system", clocktesting.NewFakePassiveClock(time.Now()))
	if err := r.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := sealed(t, r, claimA); strings.Split(text, ".")[1] != idOf(key("a")) {
		t.Errorf("sealed as %s, want by the key a", text)
	}
	if got := f.keys(t); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("the Secret has %v", got)
	}
}

func TestTheRingIsReadOnceAMinute(t *testing.T) {
	f := newFailing(t, secretWith(map[string][]byte{"1": key("a")}))
	clock := clocktesting.NewFakePassiveClock(time.Now())
	r := NewRing(f, f, "cadastre-system", clock)
	for i, step := range []struct {
		after time.Duration
		fails error
		reads int
	}{
		{0, errDown, 1}, {time.Second, errDown, 2}, {time.Second, nil, 3}, // tried again until it is read
		{time.Second, nil, 3}, {rereadEvery - 2*time.Second, nil, 3}, {time.Second, nil, 4},
		{rereadEvery, errDown, 5}, {0, nil, 6}, {0, nil, 6},
	} {
		clock.SetTime(clock.Now().Add(step.after))
		f.get = step.fails
		if r.refresh(t.Context()); f.gets != step.reads {
			t.Fatalf("step %d: %d reads, want %d", i, f.gets, step.reads)
		}
	}
}

func TestEveryReplicaLoadsTheRing(t *testing.T) {
	f := newFailing(t)
	r := NewRing(f, f, "cadastre-system", clocktesting.NewFakePassiveClock(time.Now()))
	if r.NeedLeaderElection() {
		t.Error("only the leader could seal")
	}
	secrets, err := f.Watch(t.Context(), &corev1.SecretList{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Start(ctx) }()
	for event := range secrets.ResultChan() {
		if len(event.Object.(*corev1.Secret).Data) == 1 {
			break
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// What was sealed with a key that is not known is opened when the Secret can be read.
func TestOpenReadsTheSecretForAnotherKey(t *testing.T) {
	f := newFailing(t, secretWith(map[string][]byte{"1": key("a")}))
	r := NewRing(f, f, "cadastre-system", clocktesting.NewFakePassiveClock(time.Now()))
	if err := r.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	known := sealed(t, r, claimA)
	reads := f.gets
	if _, err := r.Open(t.Context(), known, claimA); err != nil || f.gets != reads {
		t.Errorf("with a known key: %v, %d reads", err, f.gets-reads)
	}
	secret := secretWith(map[string][]byte{"2": key("b")})
	if err := f.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	other := NewRing(f, f, "cadastre-system", clocktesting.NewFakePassiveClock(time.Now()))
	if err := other.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	text := sealed(t, other, claimA)
	f.get = errDown
	if _, err := r.Open(t.Context(), text, claimA); !errors.Is(err, errDown) {
		t.Errorf("while the Secret cannot be read: %v", err)
	}
	f.get = nil
	if _, err := r.Open(t.Context(), text, claimA); err != nil {
		t.Errorf("when it can: %v", err)
	}
}

func TestWhatIsNotSealedIsNotOpened(t *testing.T) {
	f := newFailing(t, secretWith(map[string][]byte{"1": key("a")}))
	r := NewRing(f, f, "cadastre-system", clocktesting.NewFakePassiveClock(time.Now()))
	if err := r.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(sealed(t, r, claimA), ".")
	for name, c := range map[string]struct{ text, want string }{
		"two parts":       {"v1." + parts[1], "not of the operator's making"},
		"another version": {"v0." + parts[1] + "." + parts[2], "not of the operator's making"},
		"no base64":       {"v1." + parts[1] + ".!", "illegal base64"},
		"changed":         {"v1." + parts[1] + "." + parts[2][:8] + "AAAA" + parts[2][12:], "of another object, or was changed"},
	} {
		reads := f.gets
		if user, err := r.Open(t.Context(), c.text, claimA); err == nil || !strings.Contains(err.Error(), c.want) || user.Username != "" || f.gets != reads {
			t.Errorf("%s: %+v, %v, %d reads; want %q", name, user, err, f.gets-reads, c.want)
		}
	}
}

func TestRightsAskForTheVerbUse(t *testing.T) {
	f := newFailing(t)
	u := NewRights(f)
	f.review = errDown
	if may, err := u.MayUse(t.Context(), alice, ipam.PoolNamed("p")); may || !errors.Is(err, errDown) || !strings.Contains(err.Error(), "asking whether alice may use") {
		t.Errorf("while nothing answers: %t, %v", may, err)
	}
	f.review = nil
	for range 2 { // an error is not remembered, an answer is
		if may, err := u.MayUse(t.Context(), alice, ipam.PoolNamed("p")); !may || err != nil {
			t.Errorf("%t, %v", may, err)
		}
	}
	if may, err := u.MayUse(t.Context(), alice, ipam.PoolNamed("q")); !may || err != nil || len(f.reviews) != 3 {
		t.Fatalf("of another pool: %t, %v, asked %d times", may, err, len(f.reviews))
	}
	asked, is := f.reviews[1], authorizationv1.ResourceAttributes{Group: "ipam.cadastre.dev", Version: "v1alpha1", Resource: "ippools", Verb: "use", Name: "p"}
	if *asked.ResourceAttributes != is || asked.User != "alice" || asked.UID != "1" || !slices.Equal(asked.Groups, alice.Groups) || !slices.Equal(asked.Extra["scopes"], []string{"a", "b"}) {
		t.Errorf("asked %+v of %+v", asked.ResourceAttributes, asked)
	}
	if f.reviews[2].ResourceAttributes.Name != "q" {
		t.Errorf("asked of %s", f.reviews[2].ResourceAttributes.Name)
	}
}

// Different questions have different answers, whatever the parts contain.
func TestQuestionsAreKeptApart(t *testing.T) {
	of := func(change func(*authenticationv1.UserInfo)) string {
		user := authenticationv1.UserInfo{Username: "jane", UID: "1"}
		change(&user)
		return questionOf(user, ipam.PoolNamed("p"))
	}
	extra := func(pairs ...string) func(*authenticationv1.UserInfo) {
		return func(u *authenticationv1.UserInfo) {
			u.Extra = map[string]authenticationv1.ExtraValue{}
			for i := 0; i < len(pairs); i += 2 {
				u.Extra[pairs[i]] = append(u.Extra[pairs[i]], pairs[i+1])
			}
		}
	}
	seen := map[string]string{}
	for name, question := range map[string]string{
		"alone":         of(func(*authenticationv1.UserInfo) {}),
		"another name":  of(func(u *authenticationv1.UserInfo) { u.Username = "joe" }),
		"another UID":   of(func(u *authenticationv1.UserInfo) { u.UID = "2" }),
		"a group":       of(func(u *authenticationv1.UserInfo) { u.Groups = []string{"a"} }),
		"two groups":    of(func(u *authenticationv1.UserInfo) { u.Groups = []string{"a", "b"} }),
		"a and 1 group": of(func(u *authenticationv1.UserInfo) { u.Groups = []string{"a"}; extra("b", "c")(u) }),
		"an extra":      of(extra("a", "b")),
		"another value": of(extra("a", "c")),
		"two values":    of(extra("a", "b", "a", "c")),
		"two extras":    of(extra("a", "b", "c", "d")),
		"another pool":  questionOf(authenticationv1.UserInfo{Username: "jane", UID: "1"}, ipam.PoolNamed("q")),
	} {
		if other, is := seen[question]; is {
			t.Errorf("%s is asked as %s is", name, other)
		}
		seen[question] = name
	}
	for range 20 { // whatever the order of a map
		if of(extra("a", "b", "c", "d")) != of(extra("c", "d", "a", "b")) {
			t.Fatal("one question is asked in two ways")
		}
	}
}

// broken is a patch without data.
type broken struct{ client.Patch }

func (broken) Data(client.Object) ([]byte, error) { return nil, errDown }

// odd is a patch with other data.
type odd struct {
	client.Patch
	data string
}

func (o odd) Data(client.Object) ([]byte, error) { return []byte(o.data), nil }

func TestForgetReportsPatchesThatItCannotChange(t *testing.T) {
	if _, err := Forget(broken{}).Data(nil); !errors.Is(err, errDown) {
		t.Errorf("without data: %v", err)
	}
	for _, data := range []string{"[", `{"metadata":1}`} {
		if _, err := Forget(odd{data: data}).Data(nil); err == nil {
			t.Errorf("%s: no error", data)
		}
	}
	got, err := Forget(odd{data: `{"spec":{}}`}).Data(nil)
	if want := `{"metadata":{"annotations":{"` + v1alpha1.AnnotationRequester + `":null}},"spec":{}}`; string(got) != want || err != nil {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

// An annotation has room for so many groups, and for no more.
func TestASealedUserIsOfBoundedSize(t *testing.T) {
	r := newWorld(t).ring(t)
	user := authenticationv1.UserInfo{Username: "jane", Groups: []string{""}}
	empty := sealedSize(t, r, user)
	for user.Groups[0] = strings.Repeat("g", (MaxSealed-empty)*3/4-8); ; user.Groups[0] += "g" {
		text, err := r.Seal(user, claimA)
		if err != nil {
			t.Fatalf("with %d characters: %v, want one that is sealed to %d bytes", len(user.Groups[0]), err, MaxSealed)
		}
		if len(text) == MaxSealed {
			break
		}
	}
	user.Groups[0] += "g"
	if _, err := r.Seal(user, claimA); err == nil || !strings.Contains(err.Error(), "jane has too many groups") {
		t.Errorf("with a character more: %v", err)
	}
}

func sealedSize(t *testing.T, r *Ring, user authenticationv1.UserInfo) int {
	t.Helper()
	text, err := r.Seal(user, claimA)
	if err != nil {
		t.Fatal(err)
	}
	return len(text)
}

func TestWhatIsSealedAndNoUserIsNotOpened(t *testing.T) {
	r := newWorld(t, secretWith(map[string][]byte{"1": key("a")})).ring(t)
	sealer, err := gcm(key("a"))
	if err != nil {
		t.Fatal(err)
	}
	encrypted := base64.RawURLEncoding.EncodeToString(sealer.Seal(nil, nil, []byte("["), claimA.additional()))
	if user, err := r.Open(t.Context(), "v1."+idOf(key("a"))+"."+encrypted, claimA); err == nil {
		t.Errorf("opened as %+v", user)
	}
}
