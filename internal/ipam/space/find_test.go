package space

import (
	"net/netip"
	"testing"
)

// newFragmentedSpace returns 10.0.0.0/29 with .0, .1 and .6 in use: free are .2/31, .4/31 and .7.
func newFragmentedSpace() *Space {
	s := New(netip.MustParsePrefix("10.0.0.0/29"))
	s.Use(netip.MustParsePrefix("10.0.0.0/31"))
	s.Use(netip.MustParsePrefix("10.0.0.6/32"))
	return s
}

func TestFind(t *testing.T) {
	for _, c := range []struct {
		name string
		fit  Fit
		bits int
		want string
	}{
		{"first fit cuts the lowest block from a larger one", FirstFit, 32, "10.0.0.2/32"},
		{"best fit leaves larger blocks whole", BestFit, 32, "10.0.0.7/32"},
		{"worst fit cuts from the largest block", WorstFit, 32, "10.0.0.2/32"},
		{"first fit takes the lowest of equals", FirstFit, 31, "10.0.0.2/31"},
		{"best fit takes the lowest of equals", BestFit, 31, "10.0.0.2/31"},
		{"worst fit takes the lowest of equals", WorstFit, 31, "10.0.0.2/31"},
		{"four free addresses that are not aligned are no /30", FirstFit, 30, "none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := "none"
			if found, ok := newFragmentedSpace().Find(c.fit, c.bits); ok {
				got = found.String()
			}
			if got != c.want {
				t.Errorf("Find(%v, %d): got %s, want %s", c.fit, c.bits, got, c.want)
			}
		})
	}
}

func TestFindFrom(t *testing.T) {
	for _, c := range []struct {
		name string
		from string
		bits int
		want string
	}{
		{"from a free address finds it", "10.0.0.3", 32, "10.0.0.3/32"},
		{"from a used address finds the next free one", "10.0.0.6", 32, "10.0.0.7/32"},
		{"from inside a free block finds the next that starts later", "10.0.0.3", 31, "10.0.0.4/31"},
		{"from behind the last fit wraps round", "10.0.0.5", 31, "10.0.0.2/31"},
		{"from before the pool finds the lowest", "9.0.0.0", 32, "10.0.0.2/32"},
		{"from behind the pool finds the lowest", "10.0.0.8", 32, "10.0.0.2/32"},
		{"from the last address of the family finds the lowest", "255.255.255.255", 31, "10.0.0.2/31"},
		{"from anywhere finds nothing that is not there", "10.0.0.0", 30, "none"},
		{"from an address of the other family finds nothing", "::ffff:10.0.0.3", 32, "none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := "none"
			if found, ok := newFragmentedSpace().FindFrom(netip.MustParseAddr(c.from), c.bits); ok {
				got = found.String()
			}
			if got != c.want {
				t.Errorf("FindFrom(%s, %d): got %s, want %s", c.from, c.bits, got, c.want)
			}
		})
	}
}

func TestFindFromWrapsAtLastIPv6Address(t *testing.T) {
	s := New(netip.MustParsePrefix("::/0"))
	s.Use(netip.MustParsePrefix("::/16"))
	last := netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
	got, ok := s.FindFrom(last, 16)
	if want := netip.MustParsePrefix("1::/16"); !ok || got != want {
		t.Errorf("FindFrom(%v, 16): got %v, %t, want %v", last, got, ok, want)
	}
	if got, ok := s.FindFrom(netip.Addr{}, 16); ok {
		t.Errorf("FindFrom an invalid address: got %v, want none", got)
	}
}

func TestFreeBlocks(t *testing.T) {
	for _, c := range []struct {
		name  string
		space *Space
		bits  int
		want  string
	}{
		{"of one address are all the free addresses", newFragmentedSpace(), 32, "5"},
		{"of two addresses are aligned", newFragmentedSpace(), 31, "2"},
		{"of a length that is nowhere free are none", newFragmentedSpace(), 30, "0"},
		{"of an empty ::/0 are all there are", New(netip.MustParsePrefix("::/0")), 128,
			"340282366920938463463374607431768211456"},
		{"of the length of an empty pool are one", New(netip.MustParsePrefix("10.0.0.0/8")), 8, "1"},
		{"of a length larger than the pool are none", New(netip.MustParsePrefix("10.0.0.0/8")), 7, "0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.space.FreeBlocks(c.bits).String(); got != c.want {
				t.Errorf("FreeBlocks(%d): got %s, want %s", c.bits, got, c.want)
			}
		})
	}
}
