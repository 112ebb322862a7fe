package requester

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// asking is an Asker for a claim that waits for the right to use the pool p.
func asking(t *testing.T) (f *failing, a *Asker, claim *v1alpha1.IPClaim) {
	t.Helper()
	f = newFailing(t, secretWith(map[string][]byte{"1": key("a")}))
	r := NewRing(f, f, "cadastre-system", clocktesting.NewFakePassiveClock(time.Now()))
	if err := r.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	claim = &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "a", UID: "uid", Annotations: map[string]string{v1alpha1.AnnotationRequester: sealed(t, r, claimA)},
	}}
	if err := f.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	return f, NewAsker(r, NewRights(f), f, clocktesting.NewFakePassiveClock(time.Now())), claim
}

func TestTheAskerReportsWhatFailed(t *testing.T) {
	f, a, claim := asking(t)
	f.review = errDown
	if granted, after, err := a.Ask(t.Context(), claim, "IPClaim", ipam.PoolNamed("p")); granted || after != soonest || !errors.Is(err, errDown) {
		t.Errorf("while nothing answers: %t, %v, %v", granted, after, err)
	}
	a.Forget(claim.UID) // asked about at once
	f.review, f.patch = nil, errDown
	if granted, after, err := a.Ask(t.Context(), claim.DeepCopy(), "IPClaim", ipam.PoolNamed("p")); granted || after != 0 || !errors.Is(err, errDown) || !strings.Contains(err.Error(), "may be used") {
		t.Errorf("while nothing is written: %t, %v, %v", granted, after, err)
	}
	f.patch = nil
	stale := claim.DeepCopy()
	stale.ResourceVersion = "999"
	if granted, _, err := a.Ask(t.Context(), stale, "IPClaim", ipam.PoolNamed("p")); granted || err == nil {
		t.Errorf("a copy of another version than the stored one is written: %t, %v", granted, err)
	}
	if granted, after, err := a.Ask(t.Context(), claim, "IPClaim", ipam.PoolNamed("p")); !granted || after != 0 || err != nil || len(a.asked) != 0 {
		t.Errorf("at last: %t, %v, %v, remembers %v", granted, after, err, a.asked)
	}
}

// Where the keys cannot be read, the object is asked about again, and not as of nobody.
func TestTheAskerTriesAgainWithoutTheKeys(t *testing.T) {
	f, a, claim := asking(t)
	a.ring.keys, f.get = nil, errDown
	if granted, after, err := a.Ask(t.Context(), claim, "IPClaim", ipam.PoolNamed("p")); granted || after != soonest || err != nil || len(f.reviews) != 0 {
		t.Errorf("%t, %v, %v, asked %d times", granted, after, err, len(f.reviews))
	}
	if granted, after, err := a.Ask(t.Context(), claim, "IPClaim", ipam.PoolNamed("p")); granted || after != soonest || err != nil {
		t.Errorf("at once again: %t, %v, %v", granted, after, err)
	}
}

// What the Asker remembers of objects that wait no more is dropped, and of others not.
func TestTheAskerForgetsObjectsThatWaitNoMore(t *testing.T) {
	_, a, _ := asking(t)
	clock := a.clock.(*clocktesting.FakePassiveClock)
	pass := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }
	a.later("gone")
	pass(soonest + latest)
	a.later("waits") // gone is due for a minute, and not for longer
	if len(a.asked) != 2 {
		t.Errorf("remembers %v", a.asked)
	}
	pass(latest + soonest)
	if after := a.later("waits"); after != 2*time.Second || len(a.asked) != 1 {
		t.Errorf("asked about again after %v, remembers %v", after, a.asked)
	}
	pass(latest - 1) // not swept twice within a minute
	a.asked["old"] = attempt{next: clock.Now().Add(-time.Hour)}
	if a.later("waits"); len(a.asked) != 2 {
		t.Errorf("remembers %v", a.asked)
	}
	pass(1)
	if a.later("waits"); len(a.asked) != 1 {
		t.Errorf("a minute later remembers %v", a.asked)
	}
	a.Forget("waits")
	if after := a.later("waits"); after != soonest {
		t.Errorf("after it was forgotten it is asked about after %v", after)
	}
}
