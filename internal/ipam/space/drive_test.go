package space

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// pools lists the pools that are driven against a twin of 1,024 units each. Between them, lengths
// lie at both ends of an address and on both sides of its middle.
var pools = []struct {
	name string
	cidr netip.Prefix
	unit int
}{
	{"the addresses of an IPv4 /22", netip.MustParsePrefix("10.1.4.0/22"), 32},
	{"the addresses of an IPv6 /118", netip.MustParsePrefix("2001:db8::1:400/118"), 128},
	{"the /69s of an IPv6 /59", netip.MustParsePrefix("2001:db8:0:40::/59"), 69},
	{"the /10s of all of IPv4", netip.MustParsePrefix("0.0.0.0/0"), 10},
	{"the /10s of all of IPv6", netip.MustParsePrefix("::/0"), 10},
}

// call represents one operation on both a Space and its twin. The zero value is one.
type call struct {
	op   uint8
	bits uint8  // the difference in length of the block and the pool, if the block is not larger
	at   uint16 // the unit in which the block, or the address, lies
}

const (
	opUse = iota
	opRelease
	opFindAndUse
	opFindFromAndUse
	opIsFree
	opOverlaps
	opUsedIn
	opFreeBlocks
	ops
)

func randomCall(r *rand.Rand) call {
	return call{uint8(r.UintN(ops)), uint8(r.UintN(256)), uint16(r.UintN(1 << 16))}
}

// pair holds a Space, its twin, and the operations on both.
type pair struct {
	space *Space
	twin  *twin
	calls int
}

// newPair withholds runs of units, given by their ends in either order.
func newPair(cidr netip.Prefix, unit int, withheld ...[2]int) *pair {
	w := newTwin(cidr, unit)
	ranges := make([]Range, 0, len(withheld))
	for _, run := range withheld {
		units := len(w.used)
		lo, hi := run[0]%units, run[1]%units
		ranges = append(ranges, w.withhold(min(lo, hi), max(lo, hi)))
	}
	return &pair{space: NewWithout(cidr, NewRanges(cidr, ranges)), twin: w}
}

// target returns the length, block and address that a call means. One block in sixteen is as large
// as the pool or larger; addresses lie up to half a pool before and behind it, and not only on the
// edge of a unit.
func (p *pair) target(c call) (bits int, block netip.Prefix, from netip.Addr) {
	pool, units := p.twin.cidr, len(p.twin.used)
	bits = pool.Bits() + int(c.bits)%(p.twin.unit-pool.Bits()+1)
	at := int(c.at) % units
	block = netip.PrefixFrom(p.twin.block(at, bits).Addr(), bits)
	from = block.Addr()
	if c.at&(1<<15) != 0 && pool.Bits() > 0 {
		from = p.twin.block(2*at-units/2, bits).Addr()
	}
	if c.at&(1<<14) != 0 && from.Next().IsValid() {
		from = from.Next()
	}
	if c.bits >= 240 && pool.Bits() > 0 {
		block = netip.PrefixFrom(from, pool.Bits()-int(c.bits)%2)
	}
	return bits, block, from
}

// step does c to both, and returns both answers, and the fault in the trie. A found block is used,
// so that fits shape the space they work on.
func (p *pair) step(c call) (did, got, want string) {
	p.calls++
	bits, block, from := p.target(c)
	switch c.op % ops {
	case opUse:
		p.space.Use(block)
		p.twin.set(block, true)
		return fmt.Sprintf("Use(%v)", block), "", ""
	case opRelease:
		p.space.Release(block)
		p.twin.set(block, false)
		return fmt.Sprintf("Release(%v)", block), "", ""
	case opFindAndUse:
		fit := Fit(int(c.at) % 3)
		found, ok := p.space.Find(fit, bits)
		want = p.twin.find(fit, bits)
		return fmt.Sprintf("Find(%v, %d)", fit, bits), p.use(found, ok), want
	case opFindFromAndUse:
		found, ok := p.space.FindFrom(from, bits)
		want = p.twin.findFrom(from, bits)
		return fmt.Sprintf("FindFrom(%v, %d)", from, bits), p.use(found, ok), want
	case opIsFree:
		return fmt.Sprintf("IsFree(%v)", block),
			fmt.Sprint(p.space.IsFree(block)), fmt.Sprint(p.twin.isFree(block))
	case opOverlaps:
		return fmt.Sprintf("Overlaps(%v)", block),
			fmt.Sprint(p.space.Overlaps(block)), fmt.Sprint(p.twin.overlaps(block))
	case opUsedIn:
		return fmt.Sprintf("UsedIn(%v)", block),
			p.space.UsedIn(block).String(), p.twin.usedIn(block)
	default:
		return fmt.Sprintf("FreeBlocks(%d)", bits),
			p.space.FreeBlocks(bits).String(), p.twin.freeBlocks(bits)
	}
}

func (p *pair) use(found netip.Prefix, ok bool) string {
	if !ok {
		return "none"
	}
	p.space.Use(found)
	p.twin.set(found, true)
	return found.String()
}

// sums returns the answers that need no argument.
func (p *pair) sums() (got, want string) {
	largest := "none"
	if bits, ok := p.space.LargestFree(); ok {
		largest = fmt.Sprint(bits)
	}
	got = fmt.Sprintf("used %v, free %v, total %v, largest free %s",
		p.space.Used(), p.space.Free(), p.space.Total(), largest)
	used, all := p.twin.usedUnits(0, len(p.twin.used)), len(p.twin.used)
	want = fmt.Sprintf("used %s, free %s, total %s, largest free %s", p.twin.addresses(used),
		p.twin.addresses(all-used), p.twin.addresses(all), p.twin.largestFree())
	return got, want
}

// drive does one call and fails the test unless both agree and the trie is whole.
func (p *pair) drive(t *testing.T, seed any, c call) {
	t.Helper()
	did, got, want := p.step(c)
	if got == want {
		got, want = p.sums()
	}
	if got == want {
		got, want = p.space.broken(), ""
	}
	if got != want {
		t.Fatalf("seed %v, step %d, %s in %v\ngot:  %s\nwant: %s",
			seed, p.calls, did, p.twin.cidr, got, want)
	}
}
