// Package pace keeps status writes that only count things to one an interval,
// without delaying the first after a quiet time.
package pace

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Pace says when each of several things may be written next. It may be used
// concurrently.
type Pace struct {
	every time.Duration
	clock clock.PassiveClock

	mu sync.Mutex
	// turns are the last that were given out, by name, and taken when one was last
	// taken.
	turns, taken map[string]time.Time
}

// New is a pace of one turn an interval.
func New(every time.Duration, c clock.PassiveClock) *Pace {
	return &Pace{every: every, clock: c, turns: map[string]time.Time{}, taken: map[string]time.Time{}}
}

// Wait is how long until the next turn: zero when the last one is an interval
// ago. Whoever asks before a turn that is already given out shares it.
func (p *Pace) Wait(name string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, last := p.clock.Now(), p.turns[name]
	if now.Before(last) {
		return last.Sub(now)
	}
	turn := now
	if next := last.Add(p.every); now.Before(next) {
		turn = next
	}
	p.turns[name] = turn
	return turn.Sub(now)
}

// Take takes a turn, if none was taken for an interval; otherwise it says how long
// until one can be.
func (p *Pace) Take(name string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	if left := p.taken[name].Add(p.every).Sub(now); left > 0 {
		return left
	}
	p.taken[name] = now
	return 0
}
