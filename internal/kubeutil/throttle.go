package kubeutil

import (
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
)

// Throttle limits something, such as status writes that only update counts, to once an interval
// for each name, without delaying the first after a quiet time. It may be used concurrently.
type Throttle struct {
	interval time.Duration
	clock    clock.PassiveClock

	mu sync.Mutex
	// scheduled is the last time that Delay has returned, by name, and taken the time when Take
	// last returned zero.
	scheduled, taken map[string]time.Time
}

// NewThrottle returns a throttle of that interval.
func NewThrottle(interval time.Duration, c clock.PassiveClock) *Throttle {
	return &Throttle{interval: interval, clock: c, scheduled: map[string]time.Time{}, taken: map[string]time.Time{}}
}

// Delay schedules the next time for the name, and returns the time left until then: zero when
// the last one was an interval ago. A scheduled time that has not come yet is shared by all
// callers before it.
func (t *Throttle) Delay(name string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, last := t.clock.Now(), t.scheduled[name]
	if now.Before(last) {
		return last.Sub(now)
	}
	at := now
	if next := last.Add(t.interval); now.Before(next) {
		at = next
	}
	t.scheduled[name] = at
	return at.Sub(now)
}

// Take returns zero, once an interval for each name; otherwise it returns the time left until
// it will.
func (t *Throttle) Take(name string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	if remaining := t.taken[name].Add(t.interval).Sub(now); remaining > 0 {
		return remaining
	}
	t.taken[name] = now
	return 0
}

// budgetNames is the number of names that are kept in memory. When there are more, all start
// over.
const budgetNames = 4096

// Budget bounds how often something is done for each of many names, such as namespaces: a
// number of times at once, and a rate from then on. It may be used concurrently.
type Budget struct {
	clock     clock.PassiveClock
	burst     int
	perSecond float32

	mu    sync.Mutex
	names map[string]*account
}

// account holds the remaining budget of one name, and the number of refusals since it last had
// any.
type account struct {
	left    flowcontrol.PassiveRateLimiter
	refused int
}

// NewBudget returns a budget of which nothing is spent.
func NewBudget(c clock.PassiveClock, burst int, perSecond float32) *Budget {
	return &Budget{clock: c, burst: burst, perSecond: perSecond, names: map[string]*account{}}
}

// Spend reports whether it may be done once more for the name. If so, it returns the number of
// refusals since the last time that it might.
func (b *Budget) Spend(name string) (refused int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.names[name]
	if a == nil {
		if len(b.names) >= budgetNames {
			clear(b.names)
		}
		a = &account{left: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(b.perSecond, b.burst, b.clock)}
		b.names[name] = a
	}
	if !a.left.TryAccept() {
		a.refused++
		return 0, false
	}
	refused, a.refused = a.refused, 0
	return refused, true
}
