package command

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// serverClock is the API server's clock, as its answers tell it. What is stored has the
// time of the API server, and the clock of the caller's machine may be another.
type serverClock struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	ahead time.Duration
}

// over is a way to the API server on which the clock is read.
func (c *serverClock) over(way http.RoundTripper) http.RoundTripper { return &clockedWay{way, c} }

// clockedWay reads the clock of each answer.
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

// Now is the API server's time; that of the caller before the first answer.
func (c *serverClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clock.Now().Add(c.ahead)
}
