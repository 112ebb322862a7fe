package torture

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// moment is something that somebody did, and what came of it.
type moment struct {
	Began, Ended time.Time
	Who, What    string
	Result       string
}

// timeline is what was done, the last part of it for long runs. Its methods may be
// called concurrently.
type timeline struct {
	begin time.Time

	mu      sync.Mutex
	moments []moment
	dropped int
}

// remembered is how many moments are kept at least.
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

// count is how many moments there were.
func (t *timeline) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dropped + len(t.moments)
}

// around writes what was under way within so long of a time, in order.
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
