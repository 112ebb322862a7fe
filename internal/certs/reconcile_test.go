package certs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

var _ = Describe("A replica with its own certificate", func() {
	It("is ready once all configurations trust it", func(ctx SpecContext) {
		w := newWorld(ctx)
		c := w.replica(admin)
		Expect(servedCertificate(c)).To(BeNil())
		Expect(c.Check(nil)).To(MatchError("webhook certificate: not loaded yet"))

		mustPass(ctx, c) // makes the Secret
		mustPass(ctx, c)
		Expect(servedCertificate(c)).NotTo(BeNil())
		Expect(c.Check(nil)).To(MatchError(ContainSubstring("waiting for %s, %s, %s", w.mutating.Name, w.second.Name, w.validating.Name)))

		createObjects(ctx, w.mutating, w.second)
		mustPass(ctx, c)
		Expect(c.Ready()).NotTo(BeClosed())
		Expect(c.Check(nil)).To(MatchError("webhook certificate: waiting for " + w.validating.Name))

		createObjects(ctx, w.validating)
		w.passed(ctx, c)
		Expect(c.Ready()).To(BeClosed())
		Expect(c.Check(nil)).To(Succeed())
		w.accepted(ctx, c)
	})

	It("stays ready without a configuration, but not with an expired certificate", func(ctx SpecContext) {
		w := newWorld(ctx).installed(ctx)
		c := w.replica(admin)
		w.passed(ctx, c)
		Expect(admin.Delete(ctx, w.mutating)).To(Succeed())
		mustPass(ctx, c)
		Expect(c.Check(nil)).To(Succeed())
		w.later(servingLife + time.Second)
		Expect(c.Check(nil)).To(MatchError(ContainSubstring("expired")))
		mustPass(ctx, c) // there is nothing to hand over from
		Expect(c.Check(nil)).To(Succeed())
	})

	It("writes nothing where nothing is wrong", func(ctx SpecContext) {
		w := newWorld(ctx).installed(ctx)
		w.passed(ctx, w.replica(admin))
		c := w.replica(nil) // a write would panic
		w.passed(ctx, c)
		Expect(c.Ready()).To(BeClosed())
	})

	It("injects a bundle that was wiped", func(ctx SpecContext) {
		w := newWorld(ctx).installed(ctx)
		c := w.replica(admin)
		w.passed(ctx, c)
		before := w.configurations(ctx)
		w.wiped(ctx)
		w.passed(ctx, c)
		w.accepted(ctx, c)
		for i, after := range w.configurations(ctx) {
			Expect(clientConfigs(after)).To(Equal(clientConfigs(before[i])))
			Expect(after.GetGeneration()).To(Equal(before[i].GetGeneration() + 2))
		}
	})

	DescribeTable("corrects changes to the Secret by hand",
		func(ctx SpecContext, harm func(*corev1.Secret)) {
			w := newWorld(ctx).installed(ctx)
			c, other := w.replica(admin), w.replica(admin)
			w.passed(ctx, c, other)
			before := servedCertificate(c)

			if harm == nil {
				w.deleted(ctx)
			} else {
				w.harmed(ctx, harm)
			}
			w.passed(ctx, c)
			Expect(servedCertificate(c)).To(BeIdenticalTo(before), "before the handover is over")
			w.accepted(ctx, c)
			w.accepted(ctx, other)

			w.later(handover)
			w.passed(ctx, c)
			Expect(isSameCertificate(servedCertificate(c), before)).To(BeFalse())
			w.accepted(ctx, c)
			w.accepted(ctx, other)

			w.later(overlap)
			w.passed(ctx, other, c, other)
			w.later(handover)
			w.passed(ctx, other)
			Expect(isSameCertificate(servedCertificate(c), servedCertificate(other))).To(BeTrue())
			w.accepted(ctx, c)
			Expect(w.bundles(ctx)).To(HaveEach(string(w.secret(ctx).Data["ca.crt"])))
			Expect(ParseBundle(w.secret(ctx).Data["ca.crt"])).To(HaveLen(1))
		},
		Entry("it was deleted", nil),
		Entry("it was emptied", func(s *corev1.Secret) { s.Data = nil }),
		Entry("the certificate is no certificate", func(s *corev1.Secret) { s.Data["tls.crt"] = []byte("hello") }),
		Entry("the key is gone", func(s *corev1.Secret) { delete(s.Data, "tls.key") }),
		Entry("the authority is cut off", func(s *corev1.Secret) { s.Data["ca.crt"] = s.Data["ca.crt"][:99] }),
		Entry("the authority's key is no key", func(s *corev1.Secret) { s.Data["ca.key"] = []byte("-----BEGIN EC") }),
	)

	It("renews the certificate in time", func(ctx SpecContext) {
		w := newWorld(ctx).installed(ctx)
		c := w.replica(admin)
		w.passed(ctx, c)
		before := servedCertificate(c)
		w.later(servingLife * 2 / 3)
		w.passed(ctx, c)
		w.later(handover)
		w.passed(ctx, c)
		Expect(isSameCertificate(servedCertificate(c), before)).To(BeFalse())
		Expect(c.Check(nil)).To(Succeed())
		w.accepted(ctx, c)
	})

	It("does not serve a certificate that it could not make trusted", func(ctx SpecContext) {
		w := newWorld(ctx).installed(ctx)
		refused := errors.New("refused")
		refusing := false
		c := w.replica(newClientRefusing[*admissionv1.ValidatingWebhookConfiguration](refused, &refusing))
		w.passed(ctx, c)
		before := servedCertificate(c)

		refusing = true
		w.deleted(ctx)
		mustPass(ctx, c) // makes the Secret
		for range 3 {
			_, err := pass(ctx, c)
			Expect(err).To(MatchError(refused))
			Expect(servedCertificate(c)).To(BeIdenticalTo(before))
			w.accepted(ctx, c)
			w.later(handover)
		}
	})

	It("does not put an older bundle in place of a newer one, at any point where another overtakes it", func(ctx SpecContext) {
		for call := 1; call <= 5; call++ { // three reads, two writes
			By(fmt.Sprintf("before call %d", call))
			w := newWorld(ctx).installed(ctx)
			fast := w.replica(admin)
			w.passed(ctx, fast)
			w.wiped(ctx) // so that slow has something to inject
			calls := 0
			overtake := func() error {
				if calls++; calls == call {
					w.deleted(ctx)
					w.passed(ctx, fast)
				}
				return nil
			}
			slow := w.replica(build.Before(admin, overtake))
			slow.reader = build.Before(admin, overtake)

			mustPass(ctx, slow)
			Expect(calls).To(BeNumerically(">=", call))
			Expect(w.bundles(ctx)).To(HaveEach(string(w.secret(ctx).Data["ca.crt"])))
			w.passed(ctx, slow)
			w.accepted(ctx, slow)
		}
	})

	It("agrees with the others in any concurrent work", func(ctx SpecContext) {
		w := newWorld(ctx).installed(ctx)
		replicas := []*Certs{w.replica(admin), w.replica(admin), w.replica(admin)}
		harms := []func(){
			func() {}, // no Secret exists yet
			func() { w.deleted(ctx) },
			func() { w.harmed(ctx, func(s *corev1.Secret) { delete(s.Data, "ca.key") }) },
			func() { w.harmed(ctx, func(s *corev1.Secret) { delete(s.Data, "tls.crt") }) },
			func() { w.harmed(ctx, func(s *corev1.Secret) { s.Data = nil }) },
		}
		for round := range 25 {
			By(fmt.Sprintf("round %d", round))
			harms[round%len(harms)]()
			if round > 0 {
				replicas = append(replicas[1:], w.replica(admin)) // one ends, one starts
			}
			w.concurrently(ctx, replicas)
			for _, c := range replicas[1:] {
				Expect(isSameCertificate(servedCertificate(c), servedCertificate(replicas[0]))).To(BeTrue())
			}
			w.later(overlap)
			w.concurrently(ctx, replicas)
			Expect(w.bundles(ctx)).To(HaveEach(string(w.secret(ctx).Data["ca.crt"])))
		}
	}, SpecTimeout(2*time.Minute))
})

// concurrently makes passes of every replica, beside the others, until it serves the certificate in
// the Secret. After each pass, the served certificate is trusted.
func (w *world) concurrently(ctx context.Context, replicas []*Certs) {
	var all sync.WaitGroup
	for _, c := range replicas {
		all.Go(func() {
			defer GinkgoRecover()
			for done := false; !done && ctx.Err() == nil; {
				result, err := pass(ctx, c)
				Expect(err).NotTo(HaveOccurred())
				done = c.trouble.Load() == nil && c.next == nil
				if servedCertificate(c) != nil {
					w.accepted(ctx, c)
				}
				if c.next != nil {
					w.later(result.RequeueAfter)
				}
			}
		})
	}
	all.Wait()
}
