// Package load puts load on a server and measures how long each request took.
//
// A closed loop is a number of clients of which each sends its next request when
// the last one is answered. An open loop sends requests at a rate, whatever
// becomes of those before, and counts the time of each from the instant at which
// it was meant to be sent: a request that waited for a slow one before it
// shows that wait. (Measured from when it was really sent, it would not: the
// coordinated omission of https://www.azul.com/files/HowNotToMeasureLatency_LLSummit_NYC_12Nov2013.pdf.)
package load

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Shape describes how load is put on.
type Shape struct {
	// Clients of a closed loop; zero for an open loop.
	Clients int
	// PerSecond is the rate of an open loop.
	PerSecond int
}

func (s Shape) String() string {
	switch {
	case s.PerSecond > 0:
		return fmt.Sprintf("%d/s", s.PerSecond)
	case s.Clients == 1:
		return "1 client"
	}
	return fmt.Sprintf("%d clients", s.Clients)
}

// Limit holds the end of a round: after so long, or after so many requests, whatever
// comes first. Zero is no limit.
type Limit struct {
	For   time.Duration
	Count int
}

// Request does one request. Client is the client of a closed loop, and in an open loop
// a number that goes up; n is another in every call of one round, from zero.
type Request func(ctx context.Context, client, n int) error

// Round holds the measurements of one round.
type Round struct {
	// Latencies of all requests that succeeded.
	Latencies []time.Duration
	// Errors of the other requests.
	Errors []error
	// Took is from the first request to the last answer.
	Took time.Duration
}

// PerSecond returns the rate of requests that succeeded.
func (r Round) PerSecond() float64 { return float64(len(r.Latencies)) / r.Took.Seconds() }

// Run puts load on until the limit, and returns when all is answered.
func Run(ctx context.Context, shape Shape, limit Limit, do Request) Round {
	r := &recorder{}
	begin := time.Now()
	if shape.PerSecond > 0 {
		r.open(ctx, shape.PerSecond, limit, do)
	} else {
		r.closed(ctx, shape.Clients, limit, do)
	}
	r.round.Took = time.Since(begin)
	return r.round
}

type recorder struct {
	mu    sync.Mutex
	round Round
}

func (r *recorder) add(took time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.round.Errors = append(r.round.Errors, err)
		return
	}
	r.round.Latencies = append(r.round.Latencies, took)
}

func (r *recorder) closed(ctx context.Context, clients int, limit Limit, do Request) {
	begin := time.Now()
	var next atomic.Int64
	var working sync.WaitGroup
	for client := range clients {
		working.Go(func() {
			for ctx.Err() == nil {
				n := int(next.Add(1)) - 1
				if limit.Count > 0 && n >= limit.Count || limit.For > 0 && time.Since(begin) >= limit.For {
					return
				}
				sent := time.Now()
				err := do(ctx, client, n)
				r.add(time.Since(sent), err)
			}
		})
	}
	working.Wait()
}

func (r *recorder) open(ctx context.Context, perSecond int, limit Limit, do Request) {
	begin := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var working sync.WaitGroup
	defer working.Wait()
	for n := 0; limit.Count == 0 || n < limit.Count; n++ {
		after := time.Duration(n) * time.Second / time.Duration(perSecond)
		if limit.For > 0 && after >= limit.For {
			return
		}
		meant := begin.Add(after)
		timer.Reset(time.Until(meant))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		working.Go(func() {
			err := do(ctx, n, n)
			r.add(time.Since(meant), err)
		})
	}
}
