package space

import (
	"math/big"
	"math/rand/v2"
	"net/netip"
	"testing"
)

func (c Count) big() *big.Int {
	n, _ := new(big.Int).SetString(c.String(), 10)
	return n
}

// randomCount returns a count of any order of magnitude below 2^130.
func randomCount(r *rand.Rand) Count {
	u := uint128{r.Uint64(), r.Uint64()}.shiftRight(uint8(r.UintN(128)))
	return Count{top: r.Uint64N(4) * (u.hi >> 63), hi: u.hi, lo: u.lo}
}

func TestCountArithmeticMatchesBigInt(t *testing.T) {
	const seed = 1
	r := rand.New(rand.NewPCG(seed, 0))
	for step := range 20_000 {
		c, d := randomCount(r), randomCount(r)
		check := func(call, got, want any) {
			t.Helper()
			if got != want {
				t.Fatalf("seed %d, step %d, %v of %v and %v\ngot:  %v\nwant: %v", seed, step, call, c, d, got, want)
			}
		}
		sum, diff := new(big.Int).Add(c.big(), d.big()), new(big.Int).Sub(c.big(), d.big())
		if diff.Sign() < 0 {
			diff.SetInt64(0)
		}
		check("Add", c.Add(d).String(), sum.String())
		check("Sub", c.Sub(d).String(), diff.String())
		check("Cmp", c.Cmp(d), c.big().Cmp(d.big()))
		check("Equal", c.Equal(d), c.big().Cmp(d.big()) == 0)
		check("Percent", c.Percent(d), bigPercent(c.big(), d.big()))
		f, _ := new(big.Float).SetInt(c.big()).Float64()
		if ratio := c.Float64() / f; !c.IsZero() && (ratio < 1-1e-15 || ratio > 1+1e-15) {
			check("Float64", c.Float64(), f)
		}
	}
}

func TestEqualCounts(t *testing.T) {
	c := Count{1, 2, 3}
	for d, want := range map[Count]bool{{1, 2, 3}: true, {1, 2, 4}: false, {1, 3, 3}: false, {2, 2, 3}: false} {
		if got := c.Equal(d); got != want {
			t.Errorf("%v and %v: got %t, want %t", c, d, got, want)
		}
	}
}

func bigPercent(c, of *big.Int) int {
	switch {
	case c.Sign() == 0:
		return 0
	case c.Cmp(of) >= 0:
		return 100
	}
	n := new(big.Int).Mul(c, big.NewInt(100))
	return max(1, int(n.Div(n, of).Int64()))
}

func TestCountOf(t *testing.T) {
	for _, c := range []struct {
		name string
		p    netip.Prefix
		want string
	}{
		{"one IPv4 address is 1", netip.MustParsePrefix("10.0.0.1/32"), "1"},
		{"one IPv6 address is 1", netip.MustParsePrefix("::1/128"), "1"},
		{"a /22 is 1024", netip.MustParsePrefix("10.0.0.0/22"), "1024"},
		{"all of IPv4 is 2^32", netip.MustParsePrefix("0.0.0.0/0"), "4294967296"},
		{"an IPv6 /64 is 2^64", netip.MustParsePrefix("2001:db8::/64"), "18446744073709551616"},
		{"all of IPv6 is 2^128", netip.MustParsePrefix("::/0"), "340282366920938463463374607431768211456"},
		{"an invalid prefix is 0", netip.Prefix{}, "0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := CountOf(c.p).String(); got != c.want {
				t.Errorf("CountOf(%v): got %s, want %s", c.p, got, c.want)
			}
		})
	}
}

func TestPercent(t *testing.T) {
	all := CountOf(netip.MustParsePrefix("::/0"))
	one := CountOf(netip.MustParsePrefix("::/128"))
	for _, c := range []struct {
		name  string
		c, of Count
		want  int
	}{
		{"nothing is 0", Count{}, all, 0},
		{"nothing of nothing is 0", Count{}, Count{}, 0},
		{"one address of ::/0 is not nothing", one, all, 1},
		{"half is 50", CountOf(netip.MustParsePrefix("::/1")), all, 50},
		{"all but one address of ::/0 is not all", all.Sub(one), all, 99},
		{"all is 100", all, all, 100},
		{"more than all is 100", all, one, 100},
		{"a quarter of many times ::/0 is 25", Count{top: 50}, Count{top: 200}, 25},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.c.Percent(c.of); got != c.want {
				t.Errorf("%v.Percent(%v): got %d, want %d", c.c, c.of, got, c.want)
			}
		})
	}
}

func TestTimes100IsExact(t *testing.T) {
	for _, c := range []Count{
		{lo: 1<<64 - 1}, {hi: 1<<64 - 1, lo: 1<<64 - 1}, {top: 3, hi: 1<<64 - 1, lo: 1<<64 - 1},
		// 100 times this hi is 4 less than a multiple of 2^64: the carry of lo goes on into top.
		{hi: carried, lo: 1<<64 - 1}, {top: 1, hi: carried, lo: 1<<64 - 1},
	} {
		want := new(big.Int).Mul(c.big(), big.NewInt(100))
		if got := c.times100().big(); got.Cmp(want) != 0 {
			t.Errorf("%v: got %v, want %v", c, got, want)
		}
	}
}

// carried solves 25 · x = 2^62 - 1 (mod 2^62).
var carried = func() uint64 {
	modulus := new(big.Int).Lsh(big.NewInt(1), 62)
	inverse := new(big.Int).ModInverse(big.NewInt(25), modulus)
	return inverse.Sub(modulus, inverse).Uint64()
}()

func TestParseCount(t *testing.T) {
	most := new(big.Int).Lsh(big.NewInt(1), 192)
	for text, want := range map[string]bool{
		"0": true, "7": true, "-1": false, "": false, "x": false, "1.5": false, "0x10": false,
		most.String(): false, most.Sub(most, big.NewInt(1)).String(): true,
	} {
		if c, ok := ParseCount(text); ok != want || ok && c.String() != text {
			t.Errorf("%q: got %v, %t, want %t", text, c, ok, want)
		}
	}
}
