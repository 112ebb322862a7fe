package ledger

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestUnseenStoredRecordRestartsWatch shows a record that is known to be stored
// at once, late, never, or only after every wait for it has ended.
func TestUnseenStoredRecordRestartsWatch(t *testing.T) {
	const silence = 2 * time.Second
	for name, c := range map[string]struct {
		shownAfter, grace, waits time.Duration
		relists                  int
	}{
		"at once":  {0, time.Hour, 0, 0},
		"late":     {time.Second, time.Hour, time.Second, 0},
		"never":    {time.Hour, time.Hour, silence, 1},
		"too late": {time.Hour, time.Second, time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(Options{Clock: clock.RealClock{}, Silence: silence})
				relists := 0
				l.relist = func() { relists++ }
				must(t, feed{l}.Replace(recordList(), "0"))
				record := allocation("a", "1", "1", "10.0.0.0/28")
				show := func() { must(t, feed{l}.Add(record)) }
				began := time.Now()
				if c.shownAfter == 0 {
					show()
				} else {
					defer time.AfterFunc(c.shownAfter, show).Stop()
				}
				ctx, stop := context.WithTimeout(t.Context(), c.grace)
				defer stop()
				pool := ipam.PoolNamed(record.Spec.PoolRef.Name)
				l.poolViewFor(pool)
				l.AwaitStored(ctx, ipam.Name{Namespace: record.Namespace, Name: record.Name}, []ipam.PoolKey{pool})
				if waited := time.Since(began); waited != c.waits || relists != c.relists {
					t.Errorf("it waited for %s, and the watch began again %d times; want %s, %d", waited, relists, c.waits, c.relists)
				}
			})
		})
	}
}

// TestRequestWaitsForPendingRelease frees blocks, or not, in the time in which a request
// waits for one.
func TestRequestWaitsForPendingRelease(t *testing.T) {
	const grace, deadline = time.Second, 5 * time.Second
	other := ipam.PoolNamed("other")
	terminating := func(name, uid string) *v1alpha1.IPAllocation {
		o := allocation(name, uid, "2", "10.0.0.0/28")
		o.DeletionTimestamp = new(metav1.Now())
		return o
	}
	plain := allocation("a", "1", "1", "10.0.0.0/28")
	elsewhere := allocation("x", "9", "1", "10.9.0.0/28")
	elsewhere.Spec.PoolRef.Name = other.Name
	releasing, retained, holders := allocation("r", "8", "1", "10.0.0.16/28"), terminating("a", "1"), allocation("own", "7", "1", "10.0.0.16/28")
	releasing.Spec.State, retained.Spec.State = v1alpha1.AllocationState("Releasing"), v1alpha1.AllocationRetained
	releasing.Spec.ClaimRef.Name, holders.Spec.ClaimRef.Name = "asking", "asking"
	distant := allocation("own", "7", "1", "10.9.0.16/28")
	distant.Spec.PoolRef.Name, distant.Spec.ClaimRef.Name = "distant", "asking"
	for name, c := range map[string]struct {
		there  []any
		events map[time.Duration]func(feed) error
		grace  time.Duration
		waits  time.Duration
		freed  bool
	}{
		"nothing is expected":                {there: []any{plain}, grace: grace, waits: grace},
		"nothing is, and there is no grace":  {there: []any{plain}},
		"there is no grace, but it is freed": {there: []any{terminating("a", "1")}, events: map[time.Duration]func(feed) error{3 * time.Second: func(f feed) error { return f.Delete(plain) }}, waits: 3 * time.Second, freed: true},
		"it is freed in time":                {there: []any{plain}, events: map[time.Duration]func(feed) error{time.Second / 2: func(f feed) error { return f.Delete(plain) }}, grace: grace, waits: time.Second / 2, freed: true},
		"another pool's is":                  {there: []any{plain, elsewhere}, events: map[time.Duration]func(feed) error{time.Second / 2: func(f feed) error { return f.Delete(elsewhere) }}, grace: grace, waits: time.Second / 2, freed: true},
		"it is on its way, and freed late":   {there: []any{terminating("a", "1")}, events: map[time.Duration]func(feed) error{3 * time.Second: func(f feed) error { return f.Delete(plain) }}, grace: grace, waits: 3 * time.Second, freed: true},
		"it is on its way, and never freed":  {there: []any{terminating("a", "1")}, grace: grace, waits: deadline},
		"there is a sign of it in time": {there: []any{plain}, events: map[time.Duration]func(feed) error{
			time.Second / 2: func(f feed) error { return f.Update(terminating("a", "1")) },
			3 * time.Second: func(f feed) error { return f.Delete(plain) },
		}, grace: grace, waits: 3 * time.Second, freed: true},
		"its release is announced": {there: []any{plain}, events: map[time.Duration]func(feed) error{
			time.Second / 2: func(f feed) error {
				f.MarkLeaving(ipam.Name{Namespace: plain.Namespace, Name: plain.Name})
				return nil
			},
			3 * time.Second: func(f feed) error { return f.Delete(plain) },
		}, grace: grace, waits: 3 * time.Second, freed: true},
		"its claim goes": {there: []any{plain}, events: map[time.Duration]func(feed) error{
			time.Second / 2: func(f feed) error { f.SetClaimed(ipam.Name{Namespace: "ns", Name: "a"}, false); return nil },
			3 * time.Second: func(f feed) error { return f.Delete(plain) },
		}, grace: grace, waits: 3 * time.Second, freed: true},
		"it was on its way, and is kept": {there: []any{terminating("a", "1")}, events: map[time.Duration]func(feed) error{
			time.Second / 2: func(f feed) error { return f.Update(retained) },
		}, grace: grace, waits: deadline},
		"the holder itself has one":            {there: []any{holders}, grace: grace, waits: deadline},
		"the holder's own is being released":   {there: []any{releasing}, grace: grace, waits: deadline},
		"the holder has one in another's pool": {there: []any{distant}, grace: grace, waits: grace},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(Options{Clock: clock.RealClock{}, Silence: time.Minute})
				l.Describe(ipam.Pool{Key: key, Home: home, CIDR: small, Family: ipam.IPv4})
				l.Describe(ipam.Pool{Key: other, Home: home, CIDR: netip.MustParsePrefix("10.9.0.0/16"), Family: ipam.IPv4})
				must(t, feed{l}.Replace(append(recordList(poolRecord(other, "10.9.0.0/16")), c.there...), "0"))
				for after, event := range c.events {
					defer time.AfterFunc(after, func() { must(t, event(feed{l})) }).Stop()
				}
				ctx, stop := context.WithTimeout(t.Context(), deadline)
				defer stop()
				pools := []ipam.PoolKey{other, key}
				began, before := time.Now(), l.Frees(pools)
				asking := ipam.Holder{Kind: "IPClaim", Namespace: "ns", Name: "asking"}
				freed := l.AwaitRelease(ctx, pools, asking, before, c.grace)
				if waited := time.Since(began); freed != c.freed || waited != c.waits {
					t.Errorf("it waited for %s, and a block was freed: %t; want %s, %t", waited, freed, c.waits, c.freed)
				}
				for _, b := range l.poolViews {
					if len(b.waiters) > 0 {
						t.Errorf("pool %s is awaited still", b.key)
					}
				}
			})
		})
	}
}

// TestRequestDoesNotWaitForEarlierRelease frees a block between two looks.
func TestRequestDoesNotWaitForEarlierRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Clock: clock.RealClock{}, Silence: time.Minute})
		l.Describe(ipam.Pool{Key: key, Home: home, CIDR: small, Family: ipam.IPv4})
		record := allocation("a", "1", "1", "10.0.0.0/28")
		must(t, feed{l}.Replace(recordList(record), "0"))
		began, before := time.Now(), l.Frees([]ipam.PoolKey{key})
		must(t, feed{l}.Delete(record))
		if !l.AwaitRelease(t.Context(), []ipam.PoolKey{key}, ipam.Holder{}, before, 0) || time.Since(began) > 0 {
			t.Errorf("it waited for %s", time.Since(began))
		}
	})
}
