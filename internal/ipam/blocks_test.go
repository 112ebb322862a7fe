package ipam

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// TestBlocksMatchTwin draws ranges of a small pool, and compares the blocks that it holds with a []bool.
func TestBlocksMatchTwin(t *testing.T) {
	for _, cidr := range []string{"10.0.0.0/24", "255.255.255.0/24", "2001:db8::/120", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00/120"} {
		pool := Pool{CIDR: netip.MustParsePrefix(cidr)}
		addresses := addressesOf(pool.CIDR)
		for seed := range uint64(500) {
			random := rand.New(rand.NewPCG(seed, 0))
			twin, ranges := make([]bool, len(addresses)), []space.Range(nil)
			for range 1 + random.IntN(6) {
				from := random.IntN(len(addresses))
				to := min(from+random.IntN(80), len(addresses)-1)
				ranges = append(ranges, space.Range{From: addresses[from], To: addresses[to]})
				for i := from; i <= to; i++ {
					twin[i] = true
				}
			}
			pool.Occupied = space.NewRanges(pool.CIDR, ranges)
			checkTwin(t, pool, addresses, twin)
			var again []space.Range
			for _, block := range pool.Blocks() {
				again = append(again, space.RangeOf(block))
			}
			if !space.NewRanges(pool.CIDR, again).Equal(pool.Occupied) {
				t.Fatalf("seed %d: the blocks %v make other ranges than %v", seed, pool.Blocks(), ranges)
			}
		}
	}
}

func addressesOf(cidr netip.Prefix) (addresses []netip.Addr) {
	for a := cidr.Addr(); a.IsValid() && cidr.Contains(a); a = a.Next() {
		addresses = append(addresses, a)
	}
	return addresses
}

// checkTwin compares the blocks of a pool with the addresses that it is to hold.
func checkTwin(t *testing.T, pool Pool, addresses []netip.Addr, twin []bool) {
	t.Helper()
	held := 0
	for i, a := range addresses {
		count := 0
		for _, block := range pool.Blocks() {
			if block.Contains(a) {
				count++
			}
		}
		if single := netip.PrefixFrom(a, a.BitLen()); twin[i] != (count == 1) || count > 1 || pool.Has(single) != twin[i] {
			t.Fatalf("%s is in %d blocks of %v, and held: %t; want %t", a, count, pool.Blocks(), pool.Has(single), twin[i])
		}
		if twin[i] {
			held++
		}
	}
	if pool.Size() != space.CountOf64(uint64(held)) {
		t.Fatalf("the pool holds %s addresses, want %d", pool.Size(), held)
	}
	blocks := pool.Blocks()
	for i, block := range blocks {
		if i > 0 && !blocks[i-1].Addr().Less(block.Addr()) {
			t.Fatalf("%v is not sorted", blocks)
		}
		if parent := netip.PrefixFrom(block.Addr(), block.Bits()-1).Masked(); pool.Has(parent) {
			t.Fatalf("%v has not as few blocks as possible: all of %s is held", blocks, parent)
		}
	}
}

func TestPoolHoldsItsCIDROrItsRanges(t *testing.T) {
	pool := Pool{CIDR: netip.MustParsePrefix("10.0.0.0/24")}
	for _, block := range []string{"10.0.0.0/24", "10.0.0.255/32"} {
		if !pool.Has(netip.MustParsePrefix(block)) {
			t.Errorf("it has not %s", block)
		}
	}
	if pool.Has(netip.MustParsePrefix("10.0.0.0/23")) || pool.Has(netip.MustParsePrefix("10.0.1.0/32")) {
		t.Error("it has what lies outside of it")
	}
	if blocks := pool.Blocks(); len(blocks) != 1 || blocks[0] != pool.CIDR || pool.Size() != space.CountOf64(256) {
		t.Errorf("it holds %v, %s addresses", blocks, pool.Size())
	}
	if waiting := (Pool{}); waiting.Blocks() != nil || waiting.Has(pool.CIDR) {
		t.Error("a pool that waits for its CIDR holds something")
	}
}
