package kubeutil

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestThrottleSchedules(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	throttle := NewThrottle(time.Second, clock)
	for _, step := range []struct {
		at, want time.Duration
		why      string
	}{
		{0, 0, "the first is written at once"},
		{100 * time.Millisecond, 900 * time.Millisecond, "the second waits for its turn"},
		{400 * time.Millisecond, 600 * time.Millisecond, "the third shares that turn"},
		{1000 * time.Millisecond, time.Second, "a call after that turn waits for the next"},
		{5 * time.Second, 0, "after a quiet time nothing waits"},
	} {
		clock.SetTime(time.Unix(0, 0).Add(step.at))
		if got := throttle.Delay("pool"); got != step.want {
			t.Errorf("at %s: waits %s, want %s: %s", step.at, got, step.want, step.why)
		}
	}
	if got := throttle.Delay("another"); got != 0 {
		t.Errorf("another waits %s, want 0: each has its own turns", got)
	}
}

func TestThrottleIsTakenOncePerInterval(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	throttle := NewThrottle(time.Second, clock)
	for _, step := range []struct {
		at, want time.Duration
		why      string
	}{
		{0, 0, "the first is taken at once"},
		{300 * time.Millisecond, 700 * time.Millisecond, "the next is an interval later"},
		{400 * time.Millisecond, 600 * time.Millisecond, "a call in vain changes nothing"},
		{1000 * time.Millisecond, 0, "it is taken when it has come"},
		{1500 * time.Millisecond, 500 * time.Millisecond, "and the one after it counts from there"},
	} {
		clock.SetTime(time.Unix(0, 0).Add(step.at))
		if got := throttle.Take("pool"); got != step.want {
			t.Errorf("at %s: %s to go, want %s: %s", step.at, got, step.want, step.why)
		}
	}
}
