package allocator

import (
	"context"
	"errors"
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
			s.waits("exact", ipam.Request{Pool: large.Key, Block: netip.MustParsePrefix(block)})
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

// half has all but a half of the scene's pool held, and has the claim "looked at last"
// asked which pools it wants, when it has been seen who comes first.
func (s *scene) half(when func(*ledger.Hold)) {
	s.t.Helper()
	s.begun()
	a := s.allocator
	s.pool.Home, s.pool.Lengths = ipam.DomainNamed("default", ipam.IPv4), ipam.Lengths{Min: 29, Max: 32}
	a.catalogue.SetProject("ns", "ns")
	a.catalogue.SetPool(s.pool)
	order, err := a.PoolOrder(s.pool, "uid", "")
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := a.Grant(s.t.Context(), order); err != nil {
		s.t.Fatal(err)
	}
	other, err := a.ledger.Hold(ledger.Ask{Pool: s.pool.Key, Bits: 30, Record: ipam.Name{Namespace: "ns", Name: "other"}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.waits("looked-at-last", ipam.Request{Selects: func(map[string]string) bool { when(other); return false }})
}

func (s *scene) waits(name string, r ipam.Request) {
	r.Claim = ipam.Name{Namespace: "ns", Name: name}
	s.allocator.queue.Join(Waiting{Holder: HolderOfClaim(r.Claim), Request: r})
}

// TestNobodyIsOvertakenThroughABlockThatIsFreedMeanwhile has the block freed that is
// missing to whoever waits for the whole pool, when it has been seen that there is a half
// alone, and before a newcomer is served that half.
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
				s.half((*ledger.Hold).Drop)
				if c.waits {
					s.waits("first", ipam.Request{Pool: s.pool.Key, Length: 29})
				}
				record, err := s.allocator.Grant(s.t.Context(), s.order("newcomer", 30))
				if got := err == nil; got != c.want {
					t.Errorf("the newcomer has %s (%v)", record.Block, err)
				}
			})
		})
	}
}

// TestALookAtWhoComesFirstEnds has blocks freed whenever it has been seen who comes
// first, until the caller has gone.
func TestALookAtWhoComesFirstEnds(t *testing.T) {
	inScene(t, func(s *scene) {
		ctx, gone := context.WithCancel(s.t.Context())
		looks := 0
		s.half(func(other *ledger.Hold) {
			other.Drop()
			hold, err := s.allocator.ledger.Hold(ledger.Ask{Pool: s.pool.Key, Bits: 32, Record: ipam.Name{Namespace: "ns", Name: "again"}})
			if err != nil {
				t.Fatal(err)
			}
			hold.Drop()
			if looks++; looks == 10 {
				gone()
			}
		})
		if record, err := s.allocator.Grant(ctx, s.order("newcomer", 30)); !errors.Is(err, ipam.ErrUnconfirmed) || looks != 10 {
			t.Errorf("after %d looks it has %s (%v), want ErrUnconfirmed after 10", looks, record.Block, err)
		}
	})
}

func TestWhoIsAlikeIsResolvedOnce(t *testing.T) {
	inScene(t, func(s *scene) {
		s.half(func(*ledger.Hold) {})
		known := map[shape]int{}
		for _, c := range []struct {
			name         string
			request      ipam.Request
			length, seen int
		}{
			{"a", ipam.Request{Pool: s.pool.Key, Length: 30}, 30, 1},
			{"b", ipam.Request{Pool: s.pool.Key, Length: 30}, 30, 1},
			{"c", ipam.Request{Pool: s.pool.Key, Length: 31}, 31, 2},
			{"d", ipam.Request{Pool: ipam.PoolNamed("missing"), Length: 30}, ipam.NoLength, 3},
		} {
			c.request.Claim = ipam.Name{Namespace: "ns", Name: c.name}
			if got := s.allocator.lengthOf(c.request, known); got != c.length || len(known) != c.seen {
				t.Errorf("%s: /%d with %d known, want /%d with %d", c.name, got, len(known), c.length, c.seen)
			}
		}
	})
}
