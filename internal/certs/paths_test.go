package certs

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

var plain = PlainPaths{
	Mutating:   map[string]string{"a.example.com": "/a", "b.example.com": "/b", "d.example.com": "/d"},
	Validating: map[string]string{"c.example.com": "/c"},
}

// keeper returns one more operator of the world, as the keeper of the paths.
func (w *world) keeper(through client.WithWatch) *Paths {
	GinkgoHelper()
	options := w.options
	options.SecretName = "path"
	p, err := NewPaths(options, plain, through, through)
	Expect(err).NotTo(HaveOccurred())
	return p
}

// kept makes passes of each keeper until it completes one.
func (w *world) kept(ctx context.Context, keepers ...*Paths) {
	GinkgoHelper()
	for _, p := range keepers {
		Eventually(func() any {
			_, err := p.Reconcile(ctx, reconcile.Request{})
			Expect(err).NotTo(HaveOccurred())
			return p.trouble.Load()
		}).Should(BeNil())
	}
}

// paths returns the paths of all webhooks.
func (w *world) paths(ctx context.Context) []string {
	GinkgoHelper()
	var paths []string
	for _, configuration := range w.configurations(ctx) {
		for _, config := range clientConfigs(configuration) {
			paths = append(paths, pathOf(config))
		}
	}
	return paths
}

// secretInPaths returns the one secret that all paths have.
func (w *world) secretInPaths(ctx context.Context) string {
	GinkgoHelper()
	paths := w.paths(ctx)
	secret := secretIn(paths[0])
	Expect(secret).NotTo(BeEmpty())
	Expect(paths).To(Equal([]string{"/" + secret + "/a", "/" + secret + "/b", "/" + secret + "/d", "/" + secret + "/c"}))
	return secret
}

// handedOver lets a replica make the first secret and inject it, and returns that.
func (w *world) handedOver(ctx context.Context) string {
	GinkgoHelper()
	p := w.keeper(admin)
	w.kept(ctx, p, p)
	return w.secretInPaths(ctx)
}

// pathSecretNow returns the present secret of the Secret.
func (w *world) pathSecretNow(ctx context.Context) string {
	GinkgoHelper()
	return parsePathSecrets(w.pathSecret(ctx).Data).current
}

// accept expects the same judgment of a secret from all these replicas.
func (w *world) accept(ctx context.Context, want Standing, secret string, replicas ...*Paths) {
	GinkgoHelper()
	for _, p := range replicas {
		Expect(p.Judge(ctx, secret)).To(Equal(want))
	}
}

func (w *world) pathSecret(ctx context.Context) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(admin.Get(ctx, client.ObjectKey{Namespace: w.options.Namespace, Name: "path"}, secret)).To(Succeed())
	return secret
}

var _ = Describe("A replica that keeps the webhooks' paths", func() {
	It("is ready once all configurations have the secret, which it accepts", func(ctx SpecContext) {
		w := newWorld(ctx)
		p := w.keeper(admin)
		Expect(p.Check(nil)).To(MatchError("webhook path: not loaded yet"))
		Expect(p.Judge(ctx, "")).To(Equal(PathUnknown))
		for range 2 { // makes the Secret, and fills it
			result, err := p.Reconcile(ctx, reconcile.Request{})
			Expect(err).NotTo(HaveOccurred())
			Expect(result.RequeueAfter).To(Equal(unreadyRecheck), "should no watch report the new Secret")
		}
		Expect(p.Check(nil)).To(MatchError(ContainSubstring("waiting for %s, %s, %s", w.mutating.Name, w.second.Name, w.validating.Name)))
		w.installed(ctx)
		w.kept(ctx, p)
		Expect(p.Check(nil)).To(Succeed())
		Expect(p.Judge(ctx, w.secretInPaths(ctx))).To(Equal(PathAccepted))
		Expect(p.Judge(ctx, oldSecret)).To(Equal(PathUnknown))
		Expect(p.Replacements()).To(Equal(map[string]int{causeMissing: 1}))
	})

	It("hands a new secret over: known to all, then injected, and the old one for a grace", func(ctx SpecContext) {
		w := newWorld(ctx).installed(ctx)
		p, other := w.keeper(admin), w.keeper(admin)
		w.kept(ctx, p, other, p)
		first := w.secretInPaths(ctx)

		w.later(pathLife)
		w.kept(ctx, p)
		Expect(w.secretInPaths(ctx)).To(Equal(first), "before the handover is over")
		w.later(handover)
		w.kept(ctx, p)
		second := w.secretInPaths(ctx)
		Expect(second).NotTo(Equal(first))
		w.later(time.Hour) // no replica saw in it that all configurations have it
		w.kept(ctx, other, p)
		w.accept(ctx, PathAccepted, first, p, other)
		w.accept(ctx, PathAccepted, second, p, other)

		w.later(pathGrace)
		w.accept(ctx, PathOlder, first, p, other)
		w.kept(ctx, p, other)
		w.accept(ctx, PathOlder, first, p, other, w.keeper(admin))
		w.accept(ctx, PathAccepted, second, p, other)
	})

	It("accepts the former secret for as long as one configuration has it", func(ctx SpecContext) {
		w := newWorld(ctx).installed(ctx)
		first := w.handedOver(ctx)
		unwritable := errors.New("not now")
		dying := w.keeper(newClientRefusing[*admissionv1.ValidatingWebhookConfiguration](unwritable, new(true)))
		w.later(pathLife)
		w.kept(ctx, dying)
		w.later(handover)
		_, err := dying.Reconcile(ctx, reconcile.Request{})
		Expect(err).To(MatchError(unwritable))
		second := secretIn(w.paths(ctx)[0])
		Expect(second).NotTo(Equal(first))
		Expect(secretIn(w.paths(ctx)[3])).To(Equal(first))
		w.later(2 * pathLife)
		w.accept(ctx, PathAccepted, first, dying)
		Expect(dying.Replacements()).To(Equal(map[string]int{causeStart: 1}))

		next := w.keeper(admin) // after the crash
		w.kept(ctx, next, next)
		Expect(w.secretInPaths(ctx)).To(Equal(second))
		w.accept(ctx, PathAccepted, first, next)
		w.later(pathGrace)
		w.accept(ctx, PathOlder, first, next)
	})

	It("replaces a secret on whose path a request was not answered, and not twice in ten minutes", func(ctx SpecContext) {
		w := newWorld(ctx).installed(ctx)
		p := w.keeper(admin)
		w.kept(ctx, p, p)
		for range 100 {
			w.later(time.Minute)
			p.Unanswered(w.pathSecretNow(ctx))
			p.Unanswered(oldSecret) // already known
			w.kept(ctx, p, p)
		}
		Expect(p.Replacements()).To(HaveKeyWithValue(causeUnanswered, BeNumerically("~", 9, 1)))
		Expect(p.Replacements()).To(HaveLen(2), "and none for another cause than that, and the first")
	})

	It("starts a pass when a request was not answered, once", func(ctx SpecContext) {
		w := newWorld(ctx).installed(ctx)
		p := w.keeper(admin)
		w.kept(ctx, p, p)
		p.Unanswered(w.pathSecretNow(ctx))
		Expect(p.wake).To(Receive())
		p.Unanswered(w.pathSecretNow(ctx))
		Expect(p.wake).NotTo(Receive())
	})

	It("replaces the secret that was injected when it started, as soon as that is ten minutes old", func(ctx SpecContext) {
		w := newWorld(ctx).installed(ctx)
		first := w.handedOver(ctx)
		w.later(pathInterval - time.Minute)
		late := w.keeper(admin)
		w.kept(ctx, late)
		Expect(w.pathSecretNow(ctx)).To(Equal(first))
		w.later(time.Minute)
		w.kept(ctx, late)
		Expect(w.pathSecretNow(ctx)).NotTo(Equal(first))
		Expect(late.Replacements()).To(Equal(map[string]int{causeStart: 1}))

		w.later(handover)
		both := []*Paths{w.keeper(admin), w.keeper(admin)} // at once, hours later
		w.kept(ctx, late, late)
		w.later(3 * pathLife)
		w.kept(ctx, both...)
		w.kept(ctx, both...)
		Expect(both[0].Replacements()).To(Equal(map[string]int{causeStart: 1}))
		Expect(both[1].Replacements()).To(BeEmpty())
	})

	It("reads the Secret when it is called with a secret that it does not know, but not often", func(ctx SpecContext) {
		w := newWorld(ctx).installed(ctx)
		reads := 0
		late := w.keeper(interceptor.NewClient(admin, interceptor.Funcs{
			Get: func(ctx context.Context, to client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				reads++
				return to.Get(ctx, k, o, opts...)
			},
		}))
		w.kept(ctx, w.keeper(admin))
		Expect(late.Judge(ctx, w.secretInPaths(ctx))).To(Equal(PathAccepted))
		Expect(reads).To(Equal(1))
		w.later(rereadEvery)
		for range 5 {
			Expect(late.Judge(ctx, otherSecret)).To(Equal(PathUnknown))
			Expect(late.Judge(ctx, "mutate-something")).To(Equal(PathUnknown))
		}
		Expect(reads).To(Equal(2))
	})

	It("goes on accepting the injected secret when the Secret is deleted or spoiled", func(ctx SpecContext) {
		w := newWorld(ctx).installed(ctx)
		p, other := w.keeper(admin), w.keeper(admin)
		w.kept(ctx, p, other)
		for _, harm := range []func(){
			func() { Expect(admin.Delete(ctx, w.pathSecret(ctx))).To(Succeed()) },
			func() {
				secret := w.pathSecret(ctx)
				secret.Data["current"] = []byte("?")
				Expect(admin.Update(ctx, secret)).To(Succeed())
			},
		} {
			before := w.secretInPaths(ctx)
			harm()
			w.kept(ctx, p, other)
			Expect(w.secretInPaths(ctx)).To(Equal(before))
			Expect(p.Judge(ctx, before)).To(Equal(PathAccepted))
			w.later(handover)
			w.kept(ctx, other)
			Expect(w.secretInPaths(ctx)).NotTo(Equal(before))
			Expect(p.Judge(ctx, before)).To(Equal(PathAccepted))
		}
	})

	It("puts back a path that was changed by hand, also in a URL, and leaves unknown webhooks alone", func(ctx SpecContext) {
		w := newWorld(ctx)
		whole := "https://example.com:1234/c"
		w.validating.Webhooks[0].ClientConfig.Service, w.validating.Webhooks[0].ClientConfig.URL = nil, &whole
		extra := w.mutating.Webhooks[0].DeepCopy()
		extra.Name = "later.example.com"
		w.mutating.Webhooks = append(w.mutating.Webhooks, *extra)
		w.installed(ctx)
		p := w.keeper(admin)
		w.kept(ctx, p)
		all := w.configurations(ctx)
		secret := secretIn(w.paths(ctx)[0])
		Expect(w.paths(ctx)).To(Equal([]string{"/" + secret + "/a", "/" + secret + "/b", "", "/" + secret + "/d", "/" + secret + "/c"}))
		Expect(*clientConfigs(all[2])[0].URL).To(Equal("https://example.com:1234/" + secret + "/c"))

		setPath(clientConfigs(all[0])[0], "/a")
		Expect(admin.Update(ctx, all[0])).To(Succeed())
		w.kept(ctx, p)
		Expect(w.paths(ctx)[0]).To(Equal("/" + secret + "/a"))
	})

	It("does not inject a secret that it could not write down", func(ctx SpecContext) {
		w := newWorld(ctx).installed(ctx)
		refused, refusing := errors.New("refused"), false
		p := w.keeper(newClientRefusing[*corev1.Secret](refused, &refusing))
		w.kept(ctx, p, p)
		before := w.secretInPaths(ctx)
		refusing = true
		w.later(pathLife + time.Second)
		_, err := p.Reconcile(ctx, reconcile.Request{})
		Expect(err).To(MatchError(refused))
		Expect(w.secretInPaths(ctx)).To(Equal(before))
		Expect(p.Judge(ctx, before)).To(Equal(PathAccepted))
	})
})

func TestUnknownPathSecretStaysUnknownWhileSecretIsNotReadable(t *testing.T) {
	for name, read := range map[string]error{
		"missing": apierrors.NewNotFound(schema.GroupResource{}, "secret"),
		"failing": errRefused,
	} {
		reader := interceptor.NewClient(nil, interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return read
			},
		})
		p, err := NewPaths(whole, PlainPaths{}, reader, nil)
		must.Succeed(t, err)
		if got := p.Judge(t.Context(), otherSecret); got != PathUnknown {
			t.Errorf("%s: %v, want unknown", name, got)
		}
	}
}
