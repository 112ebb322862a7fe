package kubeutil

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Throttle limits something to once an interval for each name, without delaying the
// first after a quiet time: status writes that only update counts. It may be used
// concurrently.
type Throttle struct {
	interval time.Duration
	clock    clock.PassiveClock

	mu sync.Mutex
	// scheduled is the last time that Delay has returned, by name, and taken when Take
	// last returned zero.
	scheduled, taken map[string]time.Time
}

// NewThrottle returns a throttle of that interval.
func NewThrottle(interval time.Duration, c clock.PassiveClock) *Throttle {
	return &Throttle{interval: interval, clock: c, scheduled: map[string]time.Time{}, taken: map[string]time.Time{}}
}

// Delay schedules the next time for the name, and returns how long it is until then:
// zero when the last one was an interval ago. A time that is scheduled and has not come
// yet is shared by all who ask before it.
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

// Take returns zero, once an interval for each name; otherwise it returns how long it is
// until it will.
func (t *Throttle) Take(name string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	if left := t.taken[name].Add(t.interval).Sub(now); left > 0 {
		return left
	}
	t.taken[name] = now
	return 0
}
