package ledger

import (
	"math/rand/v2"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestCountsAgainstTwin compares the kept counts with counts of all records, while records come,
// change their state, are claimed and go.
func TestCountsAgainstTwin(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 2))
		w := &world{ledger: newLedger(seed), random: random, objects: map[string]*v1alpha1.IPAllocation{}, holds: map[string]*Hold{}}
		claimed := map[string]bool{}
		must(t, feed{w.ledger}.Replace(recordList(), "0"))
		for step := range 400 {
			name := strconv.Itoa(random.IntN(30))
			switch obj := w.objects[name]; {
			case random.IntN(3) == 0:
				claimed[name] = !claimed[name]
				w.ledger.SetClaimed(ipam.Name{Namespace: "ns", Name: name}, claimed[name])
			case random.IntN(3) == 0 && obj != nil:
				changed := obj.DeepCopy()
				changed.ResourceVersion = "again-" + strconv.Itoa(step)
				changed.Spec.State = []v1alpha1.AllocationState{v1alpha1.AllocationBound, v1alpha1.AllocationRetained, v1alpha1.AllocationCooling}[random.IntN(3)]
				w.objects[name] = changed
				must(t, feed{w.ledger}.Update(changed))
			default:
				w.act(t, step)
			}
			if diff := cmp.Diff(twinUsage(w.objects, claimed), w.ledger.Counts()[0].Held); diff != "" {
				t.Fatalf("seed %d, step %d: (-want +got)\n%s", seed, step, diff)
			}
		}
	}
}

func twinUsage(objects map[string]*v1alpha1.IPAllocation, claimed map[string]bool) (held [standings]ipam.Usage) {
	for name, obj := range objects {
		standing := Unclaimed
		switch {
		case obj.Spec.State == v1alpha1.AllocationRetained:
			standing = Retained
		case obj.Spec.State == v1alpha1.AllocationCooling:
			standing = Cooling
		case claimed[name]:
			standing = Bound
		}
		held[standing] = held[standing].Add(ipam.UsageOf(netip.MustParsePrefix(obj.Spec.CIDR)))
	}
	return held
}

func TestLagIsThatOfOldestUnseenRecord(t *testing.T) {
	l := newLedger(1)
	clock := l.options.Clock.(*clocktesting.FakeClock)
	must(t, feed{l}.Replace(recordList(), "0"))
	h := mustHold(t, l, ask("a"))
	clock.Step(time.Second)
	if lag := l.Lag(); lag != 0 {
		t.Errorf("the lag is %s while nothing is acknowledged", lag)
	}
	confirmed := make(chan error)
	go func() { confirmed <- h.Confirm(t.Context(), "uid") }()
	for !clock.HasWaiters() { //nolint:revive // until Confirm has begun to wait
	}
	clock.Step(3 * time.Second)
	if lag := l.Lag(); lag != 3*time.Second {
		t.Errorf("the lag is %s, want 3s", lag)
	}
	must(t, feed{l}.Add(allocation("a", "uid", "1", h.Block.String())))
	must(t, <-confirmed)
	if lag := l.Lag(); lag != 0 {
		t.Errorf("the lag is %s when all is shown", lag)
	}
}

func TestAccountsCoverOnlyLimitedUsage(t *testing.T) {
	l := newLedger(1)
	obj := allocation("a", "uid", "1", "10.0.0.0/28")
	obj.Spec.Project, obj.Spec.ClassName = "team", "gold"
	must(t, feed{l}.Replace(recordList(obj), "0"))
	got := l.Accounts(func(class string, _ ipam.PoolKey) bool { return class == "gold" })
	want := []Account{{Project: "team", Class: "gold", Usage: ipam.UsageOf(netip.MustParsePrefix("10.0.0.0/28"))}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if lists := l.Lists(); lists != 1 {
		t.Errorf("%d lists were counted, want 1", lists)
	}
}
