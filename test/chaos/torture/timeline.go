package torture

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// moment holds an action of a participant, and its result.
type moment struct {
	Began, Ended time.Time
	Who, What    string
	Result       string
}

// timeline holds the actions, the last part of them for long runs. Its methods may be called
// concurrently.
type timeline struct {
	begin time.Time

	mu      sync.Mutex
	moments []moment
	dropped int
}

// remembered is the lowest number of moments that are kept.
const remembered = 100_000

func (t *timeline) add(m moment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.moments) >= 2*remembered {
		t.dropped += remembered
		t.moments = slices.Clone(t.moments[remembered:])
	}
	t.moments = append(t.moments, m)
}

// count returns how many moments there were.
func (t *timeline) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dropped + len(t.moments)
}

// around writes the moments within so long of a time, in order.
func (t *timeline) around(to io.Writer, at time.Time, within time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var near []moment
	for _, m := range t.moments {
		if m.Ended.After(at.Add(-within)) && m.Began.Before(at.Add(within)) {
			near = append(near, m)
		}
	}
	slices.SortFunc(near, func(a, b moment) int { return a.Began.Compare(b.Began) })
	for _, m := range near {
		_, _ = fmt.Fprintf(to, "%9.3f..%9.3f  %-10s %s: %s\n",
			m.Began.Sub(t.begin).Seconds(), m.Ended.Sub(t.begin).Seconds(), m.Who, m.What, m.Result)
	}
}
