package torture

import (
	"maps"
	"sync"
	"time"
)

// gap is a time in which no block was handed out.
type gap struct{ from, to time.Time }

// noticed is the shortest gap that is kept.
const noticed = 100 * time.Millisecond

// service holds the times at which blocks were handed out.
type service struct {
	mu   sync.Mutex
	last time.Time
	gaps []gap
}

func (s *service) allocated() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !s.last.IsZero() && now.Sub(s.last) > noticed {
		s.gaps = append(s.gaps, gap{s.last, now})
	}
	s.last = now
}

// fault holds one that was injected.
type fault struct {
	Kind         string
	Began, Ended time.Time
}

// Outage holds the effects of one kind of fault.
type Outage struct {
	Count int `json:"count"`
	// Longest is the longest time without any block handed out that began while such a fault was
	// active, or covers it. Seconds.
	Longest float64 `json:"longestWithoutService"`
}

// outages returns the counts and longest gaps by kind of fault.
func (s *service) outages(faults []fault) map[string]Outage {
	s.mu.Lock()
	gaps := s.gaps
	s.mu.Unlock()
	outages := map[string]Outage{}
	for _, f := range faults {
		o := outages[f.Kind]
		o.Count++
		for _, g := range gaps {
			if g.from.Before(f.Ended) && g.to.After(f.Began) {
				o.Longest = max(o.Longest, g.to.Sub(g.from).Seconds())
			}
		}
		outages[f.Kind] = o
	}
	return maps.Clone(outages)
}
