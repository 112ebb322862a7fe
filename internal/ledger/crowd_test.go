package ledger

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestReplicasRarelyCollide plays replicas that fill one pool, each with several requests
// under way at a time that do not know of the others'. A record that gives way was written in vain.
func TestReplicasRarelyCollide(t *testing.T) {
	seeds := uint64(5)
	if testing.Short() {
		seeds = 2
	}
	for replicas := 2; replicas <= 3; replicas++ {
		for seed := range seeds {
			recorded, vain := simulateCrowd(t, replicas, seed)
			t.Logf("%d replicas, seed %d: %d of %d records written in vain", replicas, seed, vain, recorded)
			if vain*50 > recorded {
				t.Errorf("%d replicas, seed %d: %d of %d records written in vain, want one in fifty at most", replicas, seed, vain, recorded)
			}
		}
	}
}

// crowd lets replicas record blocks in rounds: all find, then all record, in the order of the
// requests, and all see the new records.
func simulateCrowd(t *testing.T, replicas int, seed uint64) (recorded, vain int) {
	const rounds, underWay = 150, 16
	crowded := make([]*Ledger, replicas)
	for i := range crowded {
		crowded[i] = newLedger(seed*10 + uint64(i))
		crowded[i].Describe(ipam.Pool{Key: key, Home: home, CIDR: netip.MustParsePrefix("10.0.0.0/12"), Family: ipam.IPv4})
		must(t, feed{crowded[i]}.Replace([]any{poolRecord(key, "10.0.0.0/12")}, "1"))
	}
	for round := range rounds {
		holds := make([][]*Hold, replicas)
		for i, l := range crowded {
			l.options.Clock.(*clocktesting.FakeClock).Step(30 * time.Millisecond)
			for n := range underWay {
				holds[i] = append(holds[i], mustHold(t, l, ask(fmt.Sprintf("r%d-%d-%d", i, round, n))))
			}
		}
		for n := range underWay {
			for i := range crowded {
				recorded++
				if !recordOne(t, crowded, holds[i][n]) {
					vain++
				}
			}
		}
	}
	return recorded, vain
}

// recordOne shows the record of a hold to all, and reports whether the block is its holder's. If
// not, the record is deleted.
func recordOne(t *testing.T, crowded []*Ledger, h *Hold) bool {
	name := h.entry.name
	obj := allocation(name, "uid-"+name, "1", h.Block.String())
	see := func(event func(feed, any) error) {
		for _, l := range slices.Backward(crowded) {
			must(t, event(feed{l}, obj))
		}
	}
	see(feed.Add)
	if err := h.Confirm(t.Context(), string(obj.UID)); err == nil {
		return true
	}
	obj.ResourceVersion = strconv.Itoa(2)
	see(feed.Delete)
	return false
}
