package ledger

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestAStoredRecordThatIsNotShownMakesTheWatchBeginAnew has a record that is known to be
// stored shown at once, late, never, or not before nobody waits for it any more.
func TestAStoredRecordThatIsNotShownMakesTheWatchBeginAnew(t *testing.T) {
	const silence = 2 * time.Second
	for name, c := range map[string]struct {
		shownAfter, patience, waits time.Duration
		relists                     int
	}{
		"at once":  {0, time.Hour, 0, 0},
		"late":     {time.Second, time.Hour, time.Second, 0},
		"never":    {time.Hour, time.Hour, silence, 1},
		"too late": {time.Hour, time.Second, time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(Options{Clock: clock.RealClock{}, Silence: silence})
				relists := 0
				l.relist = func() { relists++ }
				must(t, feed{l}.Replace(listed(), "0"))
				record := allocation("a", "1", "1", "10.0.0.0/28")
				show := func() { must(t, feed{l}.Add(record)) }
				began := time.Now()
				if c.shownAfter == 0 {
					show()
				} else {
					defer time.AfterFunc(c.shownAfter, show).Stop()
				}
				ctx, stop := context.WithTimeout(t.Context(), c.patience)
				defer stop()
				pool := ipam.PoolNamed(record.Spec.PoolRef.Name)
				l.book(pool)
				l.AwaitStored(ctx, ipam.Name{Namespace: record.Namespace, Name: record.Name}, []ipam.PoolKey{pool})
				if waited := time.Since(began); waited != c.waits || relists != c.relists {
					t.Errorf("it waited for %s, and the watch began anew %d times; want %s, %d", waited, relists, c.waits, c.relists)
				}
			})
		})
	}
}
