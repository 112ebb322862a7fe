package allocator

import (
	"net/netip"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

func TestNobodyIsOvertakenWhereThereIsPlenty(t *testing.T) {
	inScene(t, func(s *scene) {
		s.begun()
		a := s.allocator
		describe := func(name, cidr string) ipam.Pool {
			pool := ipam.Pool{Key: ipam.PoolNamed(name), CIDR: netip.MustParsePrefix(cidr), Family: ipam.IPv4, Strategy: ipam.FirstFit}
			a.Ledger().Describe(pool)
			return pool
		}
		large, small := describe("large", "10.16.0.0/12"), describe("small", "10.1.0.0/24")
		for _, c := range []struct {
			pool   ipam.Pool
			length int
			want   bool
		}{
			{large, 24, true}, {large, 21, true}, {large, 20, false}, {large, 12, false}, {large, ipam.NoLength, false},
			{small, 32, false}, {small, 24, false},
		} {
			if got := a.hasPlenty(c.pool, c.length); got != c.want {
				t.Errorf("plenty of /%d in %s: %v, want %v", c.length, c.pool.CIDR, got, c.want)
			}
		}

		waits := func(block string) {
			n := ipam.Name{Namespace: "ns", Name: "exact"}
			a.queue.Join(Waiting{Holder: HolderOfClaim(n), Request: ipam.Request{Claim: n, Pool: large.Key, Block: netip.MustParsePrefix(block)}})
		}
		waits("10.16.0.0/24")
		if a.hasPlenty(large, 24) {
			t.Error("a block that is free, and for which somebody waits, may be taken by others")
		}
		waits("10.99.0.0/24") // not of this pool
		if !a.hasPlenty(large, 24) {
			t.Error("who waits for what is not free keeps others from a pool that has plenty")
		}
	})
}
