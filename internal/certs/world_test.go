package certs

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// world holds a namespace with the objects of one operator, and the clock of its replicas.
type world struct {
	options    Options
	clock      *clocktesting.FakePassiveClock
	mutating   *admissionv1.MutatingWebhookConfiguration
	second     *admissionv1.MutatingWebhookConfiguration
	validating *admissionv1.ValidatingWebhookConfiguration
}

func newWorld(ctx context.Context) *world {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "certs-"}}
	createObjects(ctx, namespace)
	name := namespace.Name
	clock := clocktesting.NewFakePassiveClock(time.Now())
	return &world{
		options: Options{
			Namespace: name, SecretName: "cert", ServiceName: "svc",
			MutatingWebhooks: []string{name, name + "-second"}, ValidatingWebhook: name, Clock: clock,
		},
		clock:      clock,
		mutating:   mutating(name, admissionv1.ServiceReference{Namespace: name, Name: "svc"}, "a.example.com", "b.example.com"),
		second:     mutating(name+"-second", admissionv1.ServiceReference{Namespace: name, Name: "svc"}, "d.example.com"),
		validating: validating(name, admissionv1.ServiceReference{Namespace: name, Name: "svc"}),
	}
}

func mutating(name string, service admissionv1.ServiceReference, webhooks ...string) *admissionv1.MutatingWebhookConfiguration {
	none := admissionv1.SideEffectClassNone
	configuration := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, webhook := range webhooks {
		configuration.Webhooks = append(configuration.Webhooks, admissionv1.MutatingWebhook{
			Name: webhook, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig:   admissionv1.WebhookClientConfig{Service: &service},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"webhooks": service.Namespace}},
			Rules:          configMapsAreCreated,
		})
	}
	return configuration
}

func validating(name string, service admissionv1.ServiceReference) *admissionv1.ValidatingWebhookConfiguration {
	none := admissionv1.SideEffectClassNone
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "c.example.com", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig:   admissionv1.WebhookClientConfig{Service: &service},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"webhooks": service.Namespace}},
			Rules:          configMapsAreCreated,
		}},
	}
}

var configMapsAreCreated = []admissionv1.RuleWithOperations{{
	Operations: []admissionv1.OperationType{admissionv1.Create},
	Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
}}

// installed makes all configurations.
func (w *world) installed(ctx context.Context) *world {
	createObjects(ctx, w.mutating, w.second, w.validating)
	return w
}

// replica returns one more operator, with the client that it uses.
func (w *world) replica(through client.Client) *Certs {
	GinkgoHelper()
	c, err := New(w.options, admin, through)
	Expect(err).NotTo(HaveOccurred())
	return c
}

func pass(ctx context.Context, c *Certs) (reconcile.Result, error) {
	return c.Reconcile(ctx, reconcile.Request{})
}

// mustPass makes a pass that does not fail.
func mustPass(ctx context.Context, c *Certs) {
	GinkgoHelper()
	_, err := pass(ctx, c)
	Expect(err).NotTo(HaveOccurred())
}

// passed makes passes of each replica until it completes one.
func (w *world) passed(ctx context.Context, replicas ...*Certs) {
	GinkgoHelper()
	for _, c := range replicas {
		for attempt := 0; ; attempt++ {
			mustPass(ctx, c)
			if c.trouble.Load() == nil {
				break
			}
			Expect(attempt).To(BeNumerically("<", 10), *c.trouble.Load())
		}
	}
}

func (w *world) later(by time.Duration) { w.clock.SetTime(w.clock.Now().Add(by)) }

func (w *world) secret(ctx context.Context) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(admin.Get(ctx, w.options.secret(), secret)).To(Succeed())
	return secret
}

// harmed changes the Secret by hand.
func (w *world) harmed(ctx context.Context, harm func(*corev1.Secret)) {
	GinkgoHelper()
	secret := w.secret(ctx)
	before := secret.DeepCopy()
	harm(secret)
	Expect(admin.Patch(ctx, secret, client.MergeFrom(before))).To(Succeed())
}

// deleted deletes the Secret by hand.
func (w *world) deleted(ctx context.Context) {
	GinkgoHelper()
	Expect(admin.Delete(ctx, w.secret(ctx))).To(Succeed())
}

// wiped empties the bundles by hand.
func (w *world) wiped(ctx context.Context) {
	GinkgoHelper()
	for _, configuration := range w.configurations(ctx) {
		setBundle(configuration, nil)
		Expect(admin.Update(ctx, configuration)).To(Succeed())
	}
}

// configurations returns all, as the API server has them now.
func (w *world) configurations(ctx context.Context) []client.Object {
	GinkgoHelper()
	all := w.options.configurations()
	for _, configuration := range all {
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)).To(Succeed())
	}
	return all
}

// bundles returns the bundles of all webhooks.
func (w *world) bundles(ctx context.Context) []string {
	GinkgoHelper()
	var bundles []string
	for _, configuration := range w.configurations(ctx) {
		for _, webhook := range clientConfigs(configuration) {
			bundles = append(bundles, string(webhook.CABundle))
		}
	}
	return bundles
}

// accepted expects that the API server can call a replica: every configuration trusts its
// certificate.
func (w *world) accepted(ctx context.Context, c *Certs) {
	GinkgoHelper()
	certificate := servedCertificate(c) // read before the bundles: a later certificate is no excuse
	Expect(certificate).NotTo(BeNil())
	for _, bundle := range w.bundles(ctx) {
		Expect(handshakeWith(certificate, []byte(bundle), w.options.names()[0], w.clock.Now())).To(Succeed())
	}
}
