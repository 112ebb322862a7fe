package certs

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var _ = Describe("A replica whose certificate others issue", func() {
	// The issuer is another world. Its Secret is copied.
	copied := func(ctx SpecContext, from, to *world) {
		GinkgoHelper()
		to.harmed(ctx, func(s *corev1.Secret) { s.Data = from.secret(ctx).Data; delete(s.Data, authorityKey) })
	}

	It("waits for the Secret, takes its certificate and keeps it until a better one exists", func(ctx SpecContext) {
		issuer, w := newWorld(ctx), newWorld(ctx)
		issuing := issuer.replica(admin)
		_, _ = pass(ctx, issuing)
		_, _ = pass(ctx, issuing)
		first := servedCertificate(issuing)
		Expect(first).NotTo(BeNil())

		w.options.Mode = FromSecret
		c := w.replica(nil) // a write would panic
		mustPass(ctx, c)
		Expect(c.Check(nil)).To(MatchError(ContainSubstring("waiting for Secret " + w.options.secret().String())))

		secret := &corev1.Secret{}
		secret.Namespace, secret.Name = w.options.Namespace, w.options.SecretName
		createObjects(ctx, secret)
		_, err := pass(ctx, c)
		Expect(err).To(MatchError(reconcile.TerminalError(nil)))
		Expect(c.Check(nil)).To(MatchError(ContainSubstring("tls.crt and tls.key")))

		copied(ctx, issuer, w)
		w.passed(ctx, c)
		Expect(isSameCertificate(servedCertificate(c), first)).To(BeTrue())
		Expect(c.Ready()).To(BeClosed())

		w.harmed(ctx, func(s *corev1.Secret) { delete(s.Data, "tls.key") })
		_, err = pass(ctx, c)
		Expect(err).To(HaveOccurred())
		Expect(isSameCertificate(servedCertificate(c), first)).To(BeTrue())
		w.deleted(ctx)
		mustPass(ctx, c)
		Expect(isSameCertificate(servedCertificate(c), first)).To(BeTrue())
		Expect(c.Check(nil)).To(Succeed())

		issuer.harmed(ctx, func(s *corev1.Secret) { delete(s.Data, "tls.key") })
		_, _ = pass(ctx, issuing)
		second := &corev1.Secret{}
		second.Namespace, second.Name = w.options.Namespace, w.options.SecretName
		createObjects(ctx, second)
		copied(ctx, issuer, w)
		w.passed(ctx, c)
		Expect(isSameCertificate(servedCertificate(c), first)).To(BeTrue(), "before the handover is over")
		w.later(handover)
		w.passed(ctx, c)
		Expect(isSameCertificate(servedCertificate(c), first)).To(BeFalse())

		w.later(servingLife)
		_, err = pass(ctx, c)
		Expect(err).To(MatchError(ContainSubstring("expired at")))
		Expect(c.Check(nil)).To(MatchError(ContainSubstring("expired at")))
	})
})
