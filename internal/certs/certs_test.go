package certs

import (
	"crypto/tls"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

func TestNewReplicaHasNoCertificate(t *testing.T) {
	c, err := New(Options{Mode: FromSecret, Namespace: "system", SecretName: "secret"}, nil, nil)
	must.Succeed(t, err)
	if _, err := c.GetCertificate(nil); err == nil || err.Error() != "webhook certificate: not loaded yet" {
		t.Errorf("without a certificate the error is %v", err)
	}
	if at, isLoaded := c.NotAfter(); isLoaded {
		t.Errorf("no certificate expires at %s", at)
	}
}

// TestCertificateThatReturnsWaitsForHandoverAgain shows a replica two certificates without their
// authorities. The second one goes and returns before it is served.
func TestCertificateThatReturnsWaitsForHandoverAgain(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(birth)
	c, err := New(Options{Mode: FromSecret, Namespace: "system", SecretName: "secret", Clock: clock}, nil, nil)
	must.Succeed(t, err)
	authority, err := issueAuthority(birth)
	must.Succeed(t, err)
	first, err := issueServing(birth, names, authority)
	must.Succeed(t, err)
	second, err := issueServing(birth, names, authority)
	must.Succeed(t, err)
	for _, step := range []struct {
		after        time.Duration
		shown, wants *tls.Certificate
		again        time.Duration
	}{
		{0, first, first, recheck},
		{0, second, first, handover},
		{handover - time.Second, first, first, recheck},
		{handover, second, first, handover},
		{2*handover - time.Second, second, first, time.Second},
		{2 * handover, second, second, recheck},
		{servingLife, first, first, recheck}, // the other one has expired
	} {
		s := &scope{now: birth.Add(step.after), held: secretContent{serving: step.shown}, again: recheck}
		must.Succeed(t, c.serve(t.Context(), s))
		if served, err := c.GetCertificate(nil); err != nil || served != step.wants || s.again != step.again {
			t.Errorf("after %s: next pass in %s, want %s; the expected certificate is served: %v, %v", step.after, s.again, step.again, served == step.wants, err)
		}
	}
	if at, isLoaded := c.NotAfter(); !isLoaded || !at.Equal(first.Leaf.NotAfter) {
		t.Errorf("the certificate expires at %s, %v", at, isLoaded)
	}
}
