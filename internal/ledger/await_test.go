package ledger

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

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

func TestOwnRecordOfPoolWakesThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Clock: clock.RealClock{}})
		must(t, feed{l}.Replace(nil, "0"))
		pool := ipam.Pool{Key: key, Home: home, CIDR: small, Family: ipam.IPv4}
		l.Describe(pool)
		began := time.Now()
		defer time.AfterFunc(time.Second, func() { must(t, feed{l}.Add(poolRecord(key, small.String()))) }).Stop()
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		l.Await(ctx, []ipam.PoolKey{key}, func() bool { return l.IsOpen(pool) })
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("it waited for %v, want no longer than the record takes", waited)
		}
	})
}

func TestRequestWaitsForPendingRelease(t *testing.T) {
	const grace, deadline = time.Second, 5 * time.Second
	other := ipam.PoolNamed("other")
	plain := allocation("a", "1", "1", "10.0.0.0/28")
	elsewhere := allocation("x", "9", "1", "10.9.0.0/28")
	elsewhere.Spec.PoolRef.Name = other.Name
	releasing, holders := allocation("r", "8", "1", "10.0.0.16/28"), allocation("own", "7", "1", "10.0.0.16/28")
	going, retained := terminating(plain, "2"), terminating(plain, "2")
	releasing.Spec.State, retained.Spec.State = v1alpha1.AllocationReleasing, v1alpha1.AllocationRetained
	releasing.Spec.ClaimRef.Name, holders.Spec.ClaimRef.Name = "asking", "asking"
	distant := allocation("own", "7", "1", "10.9.0.16/28")
	distant.Spec.PoolRef.Name, distant.Spec.ClaimRef.Name = "distant", "asking"
	announced := func(l *Ledger) error { l.MarkLeaving(ipam.Name{Namespace: "ns", Name: "a"}); return nil }
	type events = map[time.Duration]event
	const half, late = time.Second / 2, 3 * time.Second
	for name, c := range map[string]struct {
		there  []any
		events events
		grace  time.Duration
		waits  time.Duration
		freed  bool
	}{
		"nothing is expected":                  {[]any{plain}, nil, grace, grace, false},
		"nothing is, and there is no grace":    {[]any{plain}, nil, 0, 0, false},
		"there is no grace, but it is freed":   {[]any{going}, events{late: deletes(plain)}, 0, late, true},
		"it is freed in time":                  {[]any{plain}, events{half: deletes(plain)}, grace, half, true},
		"another pool's is":                    {[]any{plain, elsewhere}, events{half: deletes(elsewhere)}, grace, half, true},
		"it is on its way, and freed late":     {[]any{going}, events{late: deletes(plain)}, grace, late, true},
		"it is on its way, and never freed":    {[]any{going}, nil, grace, deadline, false},
		"there is a sign of it in time":        {[]any{plain}, events{half: updates(going), late: deletes(plain)}, grace, late, true},
		"its release is announced":             {[]any{plain}, events{half: announced, late: deletes(plain)}, grace, late, true},
		"its claim goes":                       {[]any{plain}, events{half: claims("a", false), late: deletes(plain)}, grace, late, true},
		"it was on its way, and is kept":       {[]any{going}, events{half: updates(versioned(retained, "3"))}, grace, deadline, false},
		"the holder itself has one":            {[]any{holders}, nil, grace, deadline, false},
		"the holder's own is being released":   {[]any{releasing}, nil, grace, deadline, false},
		"the holder has one in another's pool": {[]any{distant}, nil, grace, grace, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(Options{Clock: clock.RealClock{}, Silence: time.Minute})
				l.Describe(ipam.Pool{Key: key, Home: home, CIDR: small, Family: ipam.IPv4})
				l.Describe(ipam.Pool{Key: other, Home: home, CIDR: netip.MustParsePrefix("10.9.0.0/16"), Family: ipam.IPv4})
				must(t, feed{l}.Replace(append(recordList(poolRecord(other, "10.9.0.0/16")), c.there...), "0"))
				for after, event := range c.events {
					defer time.AfterFunc(after, func() { must(t, event(l)) }).Stop()
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
						t.Errorf("pool %s is awaited still", b.pool.Key)
					}
				}
			})
		})
	}
}

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
