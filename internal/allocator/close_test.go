package allocator

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestCloseEndsBackgroundWork expects that the queue's Run has ended, and the work in the background
// is over, when Close has returned.
func TestCloseEndsBackgroundWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newUnsyncedAllocator()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			a.queue.Run(context.Background())
		}()
		over := false
		a.background.Go(func() {
			<-ended
			over = true
		})
		a.Close()
		if !over {
			t.Error("work in the background is going on")
		}
	})
}
