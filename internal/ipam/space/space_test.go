package space

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"
)

func TestSpaceMatchesTwin(t *testing.T) {
	steps := 2000
	if testing.Short() {
		steps = 300
	}
	for _, pool := range pools {
		t.Run(pool.name, func(t *testing.T) {
			for seed := range uint64(3) {
				p := newPair(pool.cidr, pool.unit)
				r := rand.New(rand.NewPCG(seed, 0))
				for range steps {
					p.drive(t, seed, randomCall(r))
				}
			}
		})
	}
}

// Random calls of all lengths fill and empty a pool in large steps. Here the
// blocks are small and come and go one at a time, as claims do, so that the trie
// grows deep and its halves merge and part far down.
func TestSpaceFillingAndEmptyingMatchesTwin(t *testing.T) {
	for _, pool := range pools {
		t.Run(pool.name, func(t *testing.T) {
			const seed = 7
			p := newPair(pool.cidr, pool.unit)
			r := rand.New(rand.NewPCG(seed, 0))
			for _, op := range []uint8{opUse, opFindFromAndUse, opRelease, opFindAndUse, opRelease} {
				for range 300 {
					c := randomCall(r)
					c.op, c.bits = op, uint8(pool.unit-pool.cidr.Bits()-r.IntN(2))
					p.drive(t, seed, c)
				}
			}
		})
	}
}

// withheldRuns holds layouts of withheld runs of units.
var withheldRuns = map[string]func(r *rand.Rand) [][2]int{
	"a few at random":        func(r *rand.Rand) [][2]int { return randomRuns(r, 1+r.IntN(6), 1024) },
	"many that are short":    func(r *rand.Rand) [][2]int { return randomRuns(r, 200, 3) },
	"all but a few":          func(r *rand.Rand) [][2]int { return append(randomRuns(r, 3, 300), [2]int{5, 1000}) },
	"every other unit":       func(*rand.Rand) [][2]int { return everyOtherRun(1024) },
	"the ends":               func(*rand.Rand) [][2]int { return [][2]int{{0, 0}, {1023, 1023}} },
	"all":                    func(*rand.Rand) [][2]int { return [][2]int{{0, 511}, {512, 1023}} },
	"every other unit, less": func(*rand.Rand) [][2]int { return append(everyOtherRun(700), [2]int{100, 300}) },
}

func randomRuns(r *rand.Rand, count, longest int) [][2]int {
	runs := make([][2]int, count)
	for i := range runs {
		lo := r.IntN(1024)
		runs[i] = [2]int{lo, min(lo+r.IntN(longest), 1023)}
	}
	return runs
}

func everyOtherRun(units int) (runs [][2]int) {
	for i := 0; i < units; i += 2 {
		runs = append(runs, [2]int{i, i})
	}
	return runs
}

func TestSpaceWithWithheldRangesMatchesTwin(t *testing.T) {
	steps := 400
	if testing.Short() {
		steps = 100
	}
	for _, pool := range pools {
		for name, runs := range withheldRuns {
			t.Run(pool.name+"/"+name, func(t *testing.T) {
				for seed := range uint64(2) {
					r := rand.New(rand.NewPCG(seed, 1))
					p := newPair(pool.cidr, pool.unit, runs(r)...)
					for range steps {
						c := randomCall(r)
						if r.IntN(2) == 0 { // small blocks, as claims take
							c.bits = uint8(pool.unit - pool.cidr.Bits() - r.IntN(3))
						}
						p.drive(t, seed, c)
					}
				}
			})
		}
	}
}

// parse calls netip.MustParsePrefix, but has a string for the invalid prefix.
func parse(s string) netip.Prefix {
	if s == "" {
		return netip.Prefix{}
	}
	return netip.MustParsePrefix(s)
}

func TestSpaceEdgeCases(t *testing.T) {
	const all = "340282366920938463463374607431768211456" // 2^128
	for name, e := range map[string]struct {
		pool         string
		use, release []string
		block        string // of which free and usedIn are asked, used being that of the whole pool
		free         bool
		usedIn, used string // empty: 0
		bits         int
		first        string // the first free block of that length
	}{
		"an empty ::/0 is one free block of 2^128 addresses": {pool: "::/0", block: "::/0", free: true, first: "::/0"},
		"a full ::/0 has 2^128 addresses in use": {
			pool: "::/0", use: []string{"::/0"}, block: "::/0", usedIn: all, bits: 128, first: "none", used: all,
		},
		"the two halves of ::/0 make it full": {
			pool: "::/0", use: []string{"8000::/1", "::/1"},
			block: "::/1", usedIn: "170141183460469231731687303715884105728", bits: 1, first: "none", used: all,
		},
		"one address released from a full ::/0 is the only one free": {
			pool: "::/0", use: []string{"::/0"}, release: []string{"1234::/128"},
			block: "1234::/128", free: true, bits: 128, first: "1234::/128", used: "340282366920938463463374607431768211455",
		},
		"an empty 0.0.0.0/0 is one free block": {pool: "0.0.0.0/0", block: "0.0.0.0/0", free: true, first: "0.0.0.0/0"},
		"the last address of 0.0.0.0/0 can be all that is free": {
			pool: "0.0.0.0/0", use: []string{"0.0.0.0/0"}, release: []string{"255.255.255.255/32"},
			block: "255.255.255.255/32", free: true, bits: 32, first: "255.255.255.255/32", used: "4294967295",
		},
		"a pool of one IPv4 address has one block": {
			pool: "10.0.0.1/32", block: "10.0.0.1/32", free: true, bits: 32, first: "10.0.0.1/32",
		},
		"a pool of one IPv4 address is full when that is in use": {
			pool: "10.0.0.1/32", use: []string{"10.0.0.1/32"}, block: "10.0.0.0/31", usedIn: "1", bits: 32, first: "none", used: "1",
		},
		"a pool of one IPv6 address is full when that is in use": {
			pool: "2001:db8::1/128", use: []string{"2001:db8::1/128"}, block: "2001:db8::1/128", usedIn: "1", bits: 128, first: "none", used: "1",
		},
		"a /31 has two addresses and the second is found when the first is used": {
			pool: "10.0.0.0/31", use: []string{"10.0.0.0/32"}, block: "10.0.0.0/31", usedIn: "1", bits: 32, first: "10.0.0.1/32", used: "1",
		},
		"the whole pool released is one free block again": {
			pool: "10.0.0.0/24", use: []string{"10.0.0.7/32", "10.0.0.128/25"}, release: []string{"10.0.0.0/24"},
			block: "10.0.0.0/24", free: true, bits: 24, first: "10.0.0.0/24",
		},
		"a block larger than the pool uses all of the pool and no more": {
			pool: "10.0.0.0/24", use: []string{"10.0.0.0/8"}, block: "10.0.0.0/8", usedIn: "256", bits: 32, first: "none", used: "256",
		},
		"a block larger than the pool is not free even when the pool is": {
			pool: "10.0.0.0/24", block: "10.0.0.0/23", bits: 23, first: "none",
		},
		"a block beside the pool changes nothing": {
			pool: "10.0.0.0/24", use: []string{"10.0.1.0/24"}, block: "10.0.1.0/24", bits: 24, first: "10.0.0.0/24",
		},
		"a block of the other family changes nothing in an IPv6 pool": {
			pool: "::/0", use: []string{"10.0.0.0/8"}, block: "10.0.0.0/8", first: "::/0",
		},
		"a block of the other family changes nothing in an IPv4 pool": {
			pool: "0.0.0.0/0", use: []string{"::/0"}, block: "::/0", first: "0.0.0.0/0",
		},
		"a block of the other family releases nothing": {
			pool: "0.0.0.0/0", use: []string{"10.0.0.0/8"}, release: []string{"::/0"},
			block: "10.0.0.0/8", usedIn: "16777216", bits: 8, first: "0.0.0.0/8", used: "16777216",
		},
		"an IPv4-mapped block is an IPv6 block": {
			pool: "0.0.0.0/0", use: []string{"::ffff:10.0.0.0/104"}, block: "::ffff:10.0.0.0/104", first: "0.0.0.0/0",
		},
		"host bits of pool and blocks are ignored": {
			pool: "10.0.0.99/24", use: []string{"10.0.0.99/25"},
			block: "10.0.0.77/25", usedIn: "128", bits: 25, first: "10.0.0.128/25", used: "128",
		},
		"a block used twice is used once": {
			pool: "10.0.0.0/24", use: []string{"10.0.0.0/25", "10.0.0.0/26", "10.0.0.0/25"},
			block: "10.0.0.0/24", usedIn: "128", bits: 25, first: "10.0.0.128/25", used: "128",
		},
		"an invalid block changes nothing": {pool: "10.0.0.0/24", use: []string{""}, block: "", bits: 24, first: "10.0.0.0/24"},
		"a length longer than an address cannot be found": {
			pool: "10.0.0.0/24", block: "10.0.0.0/24", free: true, bits: 33, first: "none",
		},
		"a negative length cannot be found": {pool: "::/0", block: "::/0", free: true, bits: -1, first: "none"},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(parse(e.pool))
			for _, block := range e.use {
				s.Use(parse(block))
			}
			for _, block := range e.release {
				s.Release(parse(block))
			}
			first := "none"
			if found, ok := s.Find(FirstFit, e.bits); ok {
				first = found.String()
			}
			block := parse(e.block)
			got := []string{strconv.FormatBool(s.IsFree(block)), s.UsedIn(block).String(), s.Used().String(), first}
			want := []string{strconv.FormatBool(e.free), cmp.Or(e.usedIn, "0"), cmp.Or(e.used, "0"), e.first}
			if !slices.Equal(got, want) {
				t.Errorf("free, used in the block, used, first free one: got %q, want %q", got, want)
			}
			if wrong := s.broken(); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

func TestNewPanicsOnInvalidCIDR(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("New returned")
		}
	}()
	New(netip.Prefix{})
}

// newStairs uses the first address of a pool and, for every bit, the address that
// differs from it in that bit alone: a trie with a node for every bit.
func newStairs(cidr netip.Prefix) *Space {
	s := New(cidr)
	first := prefix{s.pool.addr, 128}
	s.Use(first.netip(s.is4))
	for bit := s.pool.len + 1; bit <= 128; bit++ {
		s.Use(prefix{first.addr.xor(one(bit)), 128}.netip(s.is4))
	}
	return s
}

// TestTrieDepthIsBoundedByAddressBits bounds every operation: each goes from a node to one of
// its children, or is done, and by the invariants a child is longer than its parent. So the depth
// of the trie bounds them all.
func TestTrieDepthIsBoundedByAddressBits(t *testing.T) {
	for _, cidr := range []string{"0.0.0.0/0", "10.0.0.0/8", "::/0", "2001:db8::/32", "2001:db8::/64"} {
		t.Run(cidr, func(t *testing.T) {
			pool := netip.MustParsePrefix(cidr)
			s := newStairs(pool)
			if wrong := s.broken(); wrong != "" {
				t.Fatal(wrong)
			}
			depth := 0
			for at := s.root; at != none; at = innerChild(s, at) {
				depth++
			}
			// The first two addresses are merged into one leaf.
			if got, want := depth, pool.Addr().BitLen()-pool.Bits(); got != want {
				t.Errorf("nodes on the longest way down: got %d, want %d", got, want)
			}
		})
	}
}

// innerChild returns the child with children, if one exists.
func innerChild(s *Space, at ref) ref {
	n := &s.nodes[at]
	if !n.full() && s.nodes[n.child[0]].full() {
		return n.child[1]
	}
	return n.child[0]
}

func TestReleasedNodesAreReused(t *testing.T) {
	s := New(netip.MustParsePrefix("10.0.0.0/8"))
	fill := func() {
		r := rand.New(rand.NewPCG(1, 1))
		for range 1000 {
			s.Use(prefix{uint128{0, 0xffff_0a00_0000 | r.Uint64N(1<<24)}, 128}.netip(true))
		}
	}
	fill()
	nodes := len(s.nodes)
	for range 10 {
		s.Release(s.cidr)
		fill()
	}
	if got := len(s.nodes); got != nodes {
		t.Errorf("nodes after filling 10 times more: got %d, want %d", got, nodes)
	}
}

func TestFitString(t *testing.T) {
	got := fmt.Sprint(FirstFit, BestFit, WorstFit, Fit(9))
	if want := "FirstFit BestFit WorstFit Fit(9)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
