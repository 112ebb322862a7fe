package kubeutil

import (
	"sync"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
)

// budgetNames is how many names are kept in mind. When there are more, all begin anew.
const budgetNames = 4096

// Budget bounds how often something is done for each of many names, such as namespaces: so
// many times at once, and so often from then on. It may be used concurrently.
type Budget struct {
	clock     clock.PassiveClock
	burst     int
	perSecond float32

	mu    sync.Mutex
	names map[string]*account
}

// account is what one name has left, and how many times it had nothing left since it last
// had.
type account struct {
	left    flowcontrol.PassiveRateLimiter
	refused int
}

// NewBudget returns a budget of which nothing is spent.
func NewBudget(c clock.PassiveClock, burst int, perSecond float32) *Budget {
	return &Budget{clock: c, burst: burst, perSecond: perSecond, names: map[string]*account{}}
}

// Spend reports whether it may be done once more for the name; and, if so, how many times it
// might not since it last might.
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
