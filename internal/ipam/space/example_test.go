package space_test

import (
	"fmt"
	"net/netip"

	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

func ExampleSpace_Find() {
	s := space.New(netip.MustParsePrefix("10.0.0.0/29"))
	s.Use(netip.MustParsePrefix("10.0.0.0/31"))
	s.Use(netip.MustParsePrefix("10.0.0.6/32"))

	for _, fit := range []space.Fit{space.FirstFit, space.BestFit} {
		block, ok := s.Find(fit, 32)
		fmt.Println(fit, block, ok)
	}
	_, ok := s.Find(space.FirstFit, 30)
	fmt.Println("a /30 is left:", ok)
	// Output:
	// FirstFit 10.0.0.2/32 true
	// BestFit 10.0.0.7/32 true
	// a /30 is left: false
}

// Next fit asks from the end of the last block, and so hands out a released
// address as late as it can.
func ExampleSpace_FindFrom() {
	from := netip.MustParseAddr("10.0.0.0")
	s := space.New(netip.PrefixFrom(from, 30))
	for range 6 {
		block, _ := s.FindFrom(from, 32)
		fmt.Println(block)
		from = block.Addr().Next()
	}
	// Output:
	// 10.0.0.0/32
	// 10.0.0.1/32
	// 10.0.0.2/32
	// 10.0.0.3/32
	// 10.0.0.0/32
	// 10.0.0.1/32
}

// A block can be released in other parts than it was used in.
func ExampleSpace_Release() {
	cidr := netip.MustParsePrefix("2001:db8::/32")
	s := space.New(cidr)
	s.Use(cidr)
	s.Release(netip.MustParsePrefix("2001:db8:8000::/33"))
	s.Use(netip.MustParsePrefix("2001:db8:8000::1/128"))

	bits, ok := s.LargestFree()
	fmt.Println("largest free:", bits, ok)
	fmt.Println("used:", s.Used(), "of", s.Total())
	fmt.Println("used percent:", s.Used().Percent(s.Total()))
	// Output:
	// largest free: 34 true
	// used: 39614081257132168796771975169 of 79228162514264337593543950336
	// used percent: 50
}

// Withheld addresses are never handed out, and cost no more for being many prefixes.
func ExampleNewWithout() {
	cidr := netip.MustParsePrefix("10.0.0.0/28")
	from, to := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.6")
	s := space.NewWithout(cidr, space.NewRanges(cidr, []space.Range{{From: from, To: to}}))
	s.Release(cidr)

	for _, bits := range []int{32, 31, 29} {
		block, ok := s.Find(space.FirstFit, bits)
		fmt.Println(block, ok)
	}
	// Output:
	// 10.0.0.0/32 true
	// 10.0.0.8/31 true
	// 10.0.0.8/29 true
}

// A whole IPv6 pool has one address more than 128 bits can count.
func ExampleCount_Percent() {
	all := space.CountOf(netip.MustParsePrefix("::/0"))
	one := space.CountOf(netip.MustParsePrefix("::1/128"))
	fmt.Println(all)
	fmt.Println(one.Percent(all), all.Sub(one).Percent(all), all.Percent(all))
	// Output:
	// 340282366920938463463374607431768211456
	// 1 99 100
}
