package allocator

import (
	"context"
	"testing"
	"testing/synctest"

	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// TestClosedPartsRunNothing: the queue's Run has ended, and what was going on in the
// background is over, when Close has returned.
func TestClosedPartsRunNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parts := NewParts(PartsOptions{Ledger: ledger.New(ledger.Options{Clock: clock.RealClock{}})})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			parts.Queue.Run(context.Background())
		}()
		over := false
		parts.Allocator.background.Go(func() {
			<-ended
			over = true
		})
		parts.Close()
		if !over {
			t.Error("something is going on in the background")
		}
	})
}
