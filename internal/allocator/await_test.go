package allocator

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/test/build"
)

// TestAPoolThatIsSeenBeforeItsRecordKeepsNobodyFromABlock: the watch of pools may be ahead of
// that of records, and the child pool seems to wait for the CIDR that it has.
func TestAPoolThatIsSeenBeforeItsRecordKeepsNobodyFromABlock(t *testing.T) {
	for name, c := range map[string]struct {
		shown time.Duration // when its record is shown
		want  string        // empty: the claim waits
	}{
		"its record is shown a moment later": {20 * time.Millisecond, "10.0.0.4/30"},
		"it has none: it waits indeed":       {time.Hour, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inScene(t, func(s *scene) {
				s.open()
				child := build.Pool("child").Child("p", 30).CIDR("10.0.0.0/30").Obj()
				child.UID, child.ResourceVersion = "child-uid", "5"
				s.allocator.takePool(child)
				stop := time.AfterFunc(c.shown, func() {
					own := ownRecord(s.allocator, ipam.PoolNamed("child"), "10.0.0.0/30", ipam.Bound)
					own.Pool = s.pool.Key
					if err := s.server.create(adapt.Allocation(own)); err != nil {
						t.Error(err)
					}
				}).Stop
				defer stop()
				began := time.Now()
				record, err := s.allocator.Grant(s.t.Context(), s.order("newcomer", 30))
				if c.want != "" && (err != nil || record.Block.String() != c.want) || c.want == "" && !noRoom(err) {
					t.Errorf("got %s, %v; want %q", record.Block, err, c.want)
				}
				if took := time.Since(began); took != min(c.shown, patience) {
					t.Errorf("it took %v", took)
				}
				synctest.Wait()
			})
		})
	}
}
