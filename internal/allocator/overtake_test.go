package allocator

import (
	"net/netip"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
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

// TestNobodyIsOvertakenThroughABlockThatIsFreedMeanwhile has the block that all wait
// for freed when it has been seen that nothing is, and before a newcomer is served.
func TestNobodyIsOvertakenThroughABlockThatIsFreedMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		waits bool
		want  bool
	}{
		"when somebody waits for it": {waits: true},
		"when nobody does":           {want: true},
	} {
		t.Run(name, func(t *testing.T) {
			inScene(t, func(s *scene) {
				s.begun()
				a := s.allocator
				s.pool.Home, s.pool.Lengths = ipam.DomainNamed("default", ipam.IPv4), ipam.Lengths{Min: 29, Max: 32}
				a.catalogue.SetProject("ns", "ns")
				a.catalogue.SetPool(s.pool)
				if order, err := a.PoolOrder(s.pool, "uid", ""); err != nil {
					t.Fatal(err)
				} else if _, err := a.Grant(s.t.Context(), order); err != nil {
					t.Fatal(err)
				}
				holder, err := a.ledger.Hold(ledger.Ask{Pool: s.pool.Key, Bits: 29, Record: ipam.Name{Namespace: "ns", Name: "all"}})
				if err != nil {
					t.Fatal(err)
				}
				join := func(name string, r ipam.Request) {
					r.Claim = ipam.Name{Namespace: "ns", Name: name}
					a.queue.Join(Waiting{Holder: HolderOfClaim(r.Claim), Request: r})
				}
				if c.waits {
					join("first", ipam.Request{Pool: s.pool.Key, Length: 29})
				}
				// Who is looked at last is asked which pools it wants.
				join("last", ipam.Request{Selects: func(map[string]string) bool { holder.Drop(); return false }})
				record, err := a.Grant(s.t.Context(), s.order("newcomer", 29))
				if got := err == nil; got != c.want {
					t.Errorf("the newcomer has %s (%v)", record.Block, err)
				}
			})
		})
	}
}
