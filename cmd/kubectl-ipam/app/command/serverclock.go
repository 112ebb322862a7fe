package command

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// serverClock represents the API server's clock, as its answers report it. Stored objects have
// the time of the API server, and the clock of the caller's machine may differ.
type serverClock struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	ahead time.Duration
}

// over returns a way to the API server that reads the clock.
func (c *serverClock) over(way http.RoundTripper) http.RoundTripper { return &clockedWay{way, c} }

// clockedWay implements http.RoundTripper, and reads the clock of each answer.
type clockedWay struct {
	http.RoundTripper
	clock *serverClock
}

// RoundTrip implements http.RoundTripper.
func (w *clockedWay) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := w.RoundTripper.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	if at, invalid := http.ParseTime(resp.Header.Get("Date")); invalid == nil {
		w.clock.set(at)
	}
	return resp, nil
}

func (c *serverClock) set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead = at.Sub(c.clock.Now())
}

// Now returns the API server's time; the time of the caller before the first answer.
func (c *serverClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clock.Now().Add(c.ahead)
}
