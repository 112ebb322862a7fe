package load_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cadastre-dev/cadastre/test/perf/bench/load"
)

func TestOpenLoopCountsWaitForSlowRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := make(chan struct{}, 1) // which serves one at a time
		round := load.Run(t.Context(), load.Shape{PerSecond: 10}, load.Limit{For: time.Second}, func(_ context.Context, _, n int) error {
			server <- struct{}{}
			defer func() { <-server }()
			if n == 0 {
				time.Sleep(500 * time.Millisecond) //nolint:forbidigo // in a bubble of synctest
			}
			return nil
		})
		waited := 0
		for _, took := range round.Latencies {
			if took > 0 {
				waited++
			}
		}
		// The first, and the four that were meant to be sent while it was served:
		// after 100, 200, 300 and 400 ms.
		if len(round.Latencies) != 10 || waited != 5 {
			t.Errorf("%d requests, of which %d waited: want 10 and 5", len(round.Latencies), waited)
		}
	})
}

func TestClosedLoopEndsAfterCount(t *testing.T) {
	var calls atomic.Int64
	round := load.Run(t.Context(), load.Shape{Clients: 8}, load.Limit{Count: 100}, func(_ context.Context, _, n int) error {
		calls.Add(1)
		if n%10 == 0 {
			return errors.New("refused")
		}
		return nil
	})
	if calls.Load() != 100 || len(round.Latencies) != 90 || len(round.Errors) != 10 {
		t.Errorf("%d calls, %d latencies, %d errors: want 100, 90, 10", calls.Load(), len(round.Latencies), len(round.Errors))
	}
}
