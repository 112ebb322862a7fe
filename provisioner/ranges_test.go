package provisioner

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// TestFailedCallIsRepeatedWithBackOff expects the condition to state the cause, few calls, and no harm to
// the pools that are there.
func TestFailedCallIsRepeatedWithBackOff(t *testing.T) {
	conflict := apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("ippools").GroupResource(), "p", errors.New("10.0.1.0/24 conflicts with 10.0.0.0/8"))
	for name, tc := range map[string]struct {
		provides func(Request) (netip.Prefix, error)
		refuses  error
		reason   string
		message  string
	}{
		"it fails":          {func(Request) (netip.Prefix, error) { return netip.Prefix{}, errors.New("the system is away") }, nil, ReasonProvisionFailed, "the system is away"},
		"no range":          {func(Request) (netip.Prefix, error) { return netip.Prefix{}, nil }, nil, ReasonProvisionFailed, "correct the provisioner"},
		"another length":    {func(Request) (netip.Prefix, error) { return netip.MustParsePrefix("10.0.1.0/25"), nil }, nil, ReasonProvisionFailed, "10.0.1.0/25 for an IPv4 range of /24"},
		"another family":    {func(Request) (netip.Prefix, error) { return netip.MustParsePrefix("2001:db8::/24"), nil }, nil, ReasonProvisionFailed, "correct the provisioner"},
		"not a range":       {func(Request) (netip.Prefix, error) { return netip.MustParsePrefix("10.0.1.1/24"), nil }, nil, ReasonProvisionFailed, "correct the provisioner"},
		"one that overlaps": {nil, conflict, ReasonPoolRefused, "is returned, as its pool is refused: "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.demands(28, 16)
			w.settles()
			w.demands(28, 32)
			before := len(w.upstream.calls)
			w.upstream.provides = tc.provides
			w.refuses = func(*v1alpha1.IPPool) error { return tc.refuses }
			for range 600 { // a minute, with a change of the class or a pool each 100 ms
				w.settles()
				w.passes(100 * time.Millisecond)
			}
			w.expects("while it fails", 1, tc.reason)
			if message := meta.FindStatusCondition(w.class().Status.Conditions, ConditionProvisioned).Message; !strings.Contains(message, tc.message) {
				t.Errorf("the condition has the message %q, want %q", message, tc.message)
			}
			provisions := 0
			for _, call := range w.upstream.calls[before:] {
				if strings.HasPrefix(call, "provision") {
					provisions++
				}
			}
			if provisions < 5 || provisions > 7 {
				t.Errorf("it is called %d times in a minute, want 6: after 0, 1, 3, 7, 15 and 31 s", provisions)
			}
			w.upstream.provides, w.refuses = nil, func(*v1alpha1.IPPool) error { return nil }
			w.passes(lastRetry)
			w.settles()
			w.expects("when it succeeds", 2, ReasonProvisioned)
		})
	}
}

// TestRangesAreConfirmed expects Provision to be called with the range of each pool at start, and
// again after a while, and a pool whose range is lost to stay.
func TestRangesAreConfirmed(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 32)
	w.settles()
	w.upstream.calls, w.upstream.ranges = nil, map[string]netip.Prefix{} // it is restored from a backup
	w.settles()
	if len(w.upstream.calls) > 0 {
		t.Errorf("called %v before it is due", w.upstream.calls)
	}
	w.restart()
	w.settles()
	w.expects("after a restart", 2, ReasonProvisioned)
	w.upstream.calls, w.upstream.ranges = nil, map[string]netip.Prefix{"other": netip.MustParsePrefix("10.0.0.0/24")}
	w.passes(10 * time.Minute)
	w.settles()
	if calls := slices.Sorted(slices.Values(w.upstream.calls)); !slices.Equal(calls, []string{"provision 10.0.0.0/24"}) && !slices.Equal(calls, []string{"provision 10.0.0.0/24", "provision 10.0.1.0/24"}) {
		t.Errorf("called %v", calls)
	}
	for range 2 { // the first one again, then the other
		w.passes(firstRetry)
		w.settles()
	}
	if condition := meta.FindStatusCondition(w.class().Status.Conditions, ConditionProvisioned); condition.Reason != ReasonRangeLost || len(w.pools()) != 2 || len(w.upstream.ranges) != 2 {
		t.Errorf("with a lost range, there are %d pools and ranges %v, and the condition is %+v", len(w.pools()), w.upstream.ranges, condition)
	}
}

func TestRangeInConflictIsReturned(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 1)
	w.conflict = "10.0.0.0/24 conflicts with 10.0.0.0/8"
	w.settles()
	w.expects("in conflict", 0, ReasonPoolRefused)
	w.conflict = ""
	w.passes(lastRetry)
	w.settles()
	w.expects("later", 1, ReasonProvisioned)
}

// TestFailingSystemIsAskedForOneRange expects one key while the system fails, however large the demand is,
// and none after the demand has gone.
func TestFailingSystemIsAskedForOneRange(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 1000)
	w.upstream.provides = func(Request) (netip.Prefix, error) { return netip.Prefix{}, errors.New("away") }
	for range 5 {
		w.settles()
		w.passes(time.Minute)
	}
	if entries, err := w.controller.keys.list(t.Context()); err != nil || len(entries) != 1 {
		t.Errorf("the keys are %v, %v", entries, err)
	}
	w.demands()
	w.settles()
	w.expects("without demand", 0, ReasonProvisioned)
	w.passes(w.controller.options.Timeout)
	w.settles()
	w.hasNoKeys()
}

// TestWaitingRangeFollowsParameters covers a class that is corrected while the system has no range of the
// length that it had before.
func TestWaitingRangeFollowsParameters(t *testing.T) {
	w := newWorld(t)
	w.edit(func(class *v1alpha1.IPClass) { class.Spec.Parameters["poolPrefixLength"] = "16" })
	w.demands(28, 1)
	w.upstream.provides = func(r Request) (netip.Prefix, error) {
		if r.PrefixLength == 16 {
			return netip.Prefix{}, errors.New("there is no /16")
		}
		w.upstream.ranges[r.Key] = netip.MustParsePrefix("10.0.0.0/24")
		return w.upstream.ranges[r.Key], nil
	}
	w.settles()
	w.expects("too large", 0, ReasonProvisionFailed)
	w.edit(func(class *v1alpha1.IPClass) { class.Spec.Parameters["poolPrefixLength"] = "x" })
	w.upstream.calls = nil
	w.passes(time.Minute)
	w.settles()
	w.expects("invalid", 0, ReasonInvalidParameters)
	if len(w.upstream.calls) > 0 {
		t.Errorf("with invalid parameters, %v was called", w.upstream.calls)
	}
	w.edit(func(class *v1alpha1.IPClass) { class.Spec.Parameters["poolPrefixLength"] = "24" })
	w.settles()
	w.expects("corrected", 1, ReasonProvisioned)
}

// TestFailingConfirmationsDelayNothingElse expects a pass to return a range before it has others confirmed.
func TestFailingConfirmationsDelayNothingElse(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 48)
	w.settles()
	pools := w.pools()
	must(t, w.store.Delete(t.Context(), &pools[2]))
	w.demands(28, 32)
	w.passes(10 * time.Minute)
	w.upstream.provides = func(Request) (netip.Prefix, error) { return netip.Prefix{}, errors.New("away") }
	for range 2 { // to notice that the pool is gone, and to return its range
		_, err := w.pass()
		must(t, err)
	}
	if len(w.upstream.ranges) != 2 {
		t.Errorf("the ranges are %v, and the calls %v", w.upstream.ranges, w.upstream.calls)
	}
}

func TestPoolThatIsNotRecordedIsReported(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 1)
	w.unrecorded = "the parent is not ready"
	w.settles()
	condition := meta.FindStatusCondition(w.class().Status.Conditions, ConditionProvisioned)
	if condition.Reason != ReasonPoolRefused || !strings.Contains(condition.Message, w.unrecorded) || len(w.upstream.ranges) != 1 {
		t.Errorf("the condition is %+v, and the ranges are %v", condition, w.upstream.ranges)
	}
}

func TestPassEndsItsCallsWithFirstFailure(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 48)
	w.settles()
	w.restart()
	w.upstream.calls = nil
	w.upstream.provides = func(Request) (netip.Prefix, error) { return netip.Prefix{}, errors.New("away") }
	if _, err := w.pass(); err != nil || len(w.upstream.calls) != 1 {
		t.Errorf("%d calls were made, %v; each may take 30 s", len(w.upstream.calls), err)
	}
}

// TestPoolOfAnotherClassIsNotAdopted covers a pool whose creator labels it like those of a provisioner:
// Provision would take its range.
func TestPoolOfAnotherClassIsNotAdopted(t *testing.T) {
	w := newWorld(t)
	w.edit(func(class *v1alpha1.IPClass) { class.Spec.Provisioner = "another.example.com/x" })
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "forged", Labels: map[string]string{LabelProvisioner: "ipam.example.com.ranges"}}}
	pool.Spec.CIDR, pool.Spec.ClassNames = "10.0.9.0/24", []string{className}
	w.create(pool)
	w.passes(time.Hour)
	w.settles()
	if entries, err := w.controller.keys.list(t.Context()); err != nil || len(entries)+len(w.upstream.calls) > 0 || len(w.pools()) != 1 {
		t.Errorf("the keys are %v, %v, the calls are %v, and %d pools are left", entries, err, w.upstream.calls, len(w.pools()))
	}
}

// TestPoolThatCannotBeCreatedNowKeepsRange covers an API server that reaches no replica of the operator.
func TestPoolThatCannotBeCreatedNowKeepsRange(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 1)
	w.refuses = func(*v1alpha1.IPPool) error { return apierrors.NewInternalError(errors.New("failed calling webhook")) }
	for range 5 {
		w.settles()
		w.passes(firstRetry)
	}
	condition := meta.FindStatusCondition(w.class().Status.Conditions, ConditionProvisioned)
	if condition.Reason != ReasonPoolRefused || !strings.Contains(condition.Message, "creating the pool of range 10.0.0.0/24") || len(w.upstream.ranges) != 1 || slices.Contains(w.upstream.calls, "release") {
		t.Errorf("the calls are %v, the ranges %v, and the condition is %+v", w.upstream.calls, w.upstream.ranges, condition)
	}
	w.refuses = func(*v1alpha1.IPPool) error { return nil }
	w.passes(lastRetry)
	w.settles()
	w.expects("later", 1, ReasonProvisioned)
}
