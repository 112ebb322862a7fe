package story

import (
	"context"
	"testing"
	"time"
)

// TestUntilSeesChangeDuringItsCondition covers a change between the read of an object and the
// comparison with the objects shown: the condition is called again.
func TestUntilSeesChangeDuringItsCondition(t *testing.T) {
	s, calls := newShown(), 0
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	holds := s.until(ctx, func() bool {
		calls++
		if calls == 1 {
			s.drop(key{})
		}
		return calls == 2
	})
	if !holds || calls != 2 {
		t.Fatalf("holds %v after %d calls, want true after 2", holds, calls)
	}
}
