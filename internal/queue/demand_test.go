package queue

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// TestDemandCountsClaimsThatPoolWouldServe expects one notification at least for each change, so that a
// controller that recomputes the demand then has it right.
func TestDemandCountsClaimsThatPoolWouldServe(t *testing.T) {
	runScene(t, Options{Limit: 6}, func(s *scene) {
		class := ipam.Class{Name: "leased", Provisioner: "example.com/ipam", Family: ipam.IPv4, Length: ipam.NoLength, Lengths: ipam.Lengths{Max: 32}}
		s.catalog.SetClass(inventory.ClassEntry{Class: class})
		s.catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "ours", Family: ipam.IPv4, Lengths: ipam.Lengths{Max: 32}}})
		s.open()
		notified := map[string]bool{}
		stop := s.queue.ListenDemand(func(class string) { notified[class] = true })
		for _, c := range []struct {
			what string
			do   func()
			want map[int]int
			// quiet reports whether no notification is expected.
			quiet bool
		}{
			{"nothing waits", func() {}, nil, true},
			{"a claim waits without any pool", func() { s.waits("a", ipam.Request{Class: "leased", Length: 28}) }, map[int]int{28: 1}, false},
			{"one of the same length, one of another", func() {
				s.waits("b", ipam.Request{Class: "leased", Length: 28})
				s.waits("c", ipam.Request{Class: "leased", Length: 30})
			}, map[int]int{28: 2, 30: 1}, false},
			{"one without length", func() { s.waits("d", ipam.Request{Class: "leased", Length: ipam.NoLength}) }, map[int]int{28: 2, 30: 1, 32: 1}, false},
			{"one of a class without provisioner", func() { s.waits("e", ipam.Request{Class: "ours", Length: 28}) }, map[int]int{28: 2, 30: 1, 32: 1}, true},
			{"one that asks for one block", func() {
				s.waits("f", ipam.Request{Class: "leased", Block: netip.MustParsePrefix("10.0.0.0/28"), Length: ipam.NoLength})
			}, map[int]int{28: 2, 30: 1, 32: 1}, true},
			{"one beyond the bound of its namespace", func() { s.waits("g", ipam.Request{Class: "leased", Length: 28}) }, map[int]int{28: 2, 30: 1, 32: 1}, true},
			{"a pool of the class has no network, so a claim must state a length", func() {
				pool := s.pool
				pool.Classes = []string{"leased"}
				s.catalog.SetPool(pool)
			}, map[int]int{28: 2, 30: 1}, false},
			{"it is refused", func() { s.queue.Park(claim("a"), &ipam.ParkedError{}) }, map[int]int{28: 1, 30: 1}, false},
			{"one leaves", func() { s.queue.Leave(claim("c")) }, map[int]int{28: 2}, false}, // g moves up
			{"it can be served again", func() { s.waits("a", ipam.Request{Class: "leased", Length: 30}) }, map[int]int{28: 2}, true},
			{"nothing listens", func() { stop(); s.queue.Leave(claim("b")) }, map[int]int{28: 1}, true},
		} {
			clear(notified)
			c.do()
			if got := s.queue.Demand(class); !maps.Equal(got, c.want) {
				t.Errorf("%s: the demand is %v, want %v", c.what, got, c.want)
			}
			if want := !c.quiet; notified["leased"] != want || len(notified) > 1 {
				t.Errorf("%s: notified of %v, want %t", c.what, slices.Collect(maps.Keys(notified)), want)
			}
		}
	})
}

// TestDemandIsWithinLimitOfClass expects that a project cannot make a provisioner take more than the
// project may hold.
func TestDemandIsWithinLimitOfClass(t *testing.T) {
	runScene(t, Options{}, func(s *scene) {
		limit := ipam.Limit{Addresses: ipam.Maximum{Set: true, Count: space.CountOf64(8)}}
		class := ipam.Class{Name: "leased", Provisioner: "example.com/ipam", Family: ipam.IPv4, Length: ipam.NoLength, Lengths: ipam.Lengths{Max: 32}, Limit: limit}
		s.catalog.SetClass(inventory.ClassEntry{Class: class})
		s.open()
		for _, name := range []string{"a", "b", "c"} {
			s.waits(name, ipam.Request{Class: "leased", Length: 30})
		}
		if got := s.queue.Demand(class); !maps.Equal(got, map[int]int{30: 2}) {
			t.Errorf("the demand is %v, want 2 blocks of 4 addresses", got)
		}
		for class, block := range map[string]string{"leased": "10.0.0.0/32", "other": "10.0.0.16/28", "": "10.0.0.32/28"} {
			name := "held" + class
			s.stores(ipam.Record{
				Name: ipam.Name{Namespace: "ns", Name: name}, Block: netip.MustParsePrefix(block), Pool: s.pool.Key, Class: class,
				Project: "ns", Holder: claim(name), Purpose: ipam.PurposeClaim,
			})
		}
		if got := s.queue.Demand(class); !maps.Equal(got, map[int]int{30: 1}) {
			t.Errorf("the demand beside an address that is held is %v, want 1 block of 4 addresses", got)
		}
		class.Name, class.Family, class.Lengths.Max = "leased-v6", ipam.IPv6, 128
		s.catalog.SetClass(inventory.ClassEntry{Class: class})
		for _, name := range []string{"d", "e", "f"} {
			s.waits(name, ipam.Request{Class: class.Name, Length: 126})
		}
		if got := s.queue.Demand(class); !maps.Equal(got, map[int]int{126: 2}) {
			t.Errorf("the demand of IPv6 is %v, want 2 blocks of 4 addresses", got)
		}
		standard := ipam.Class{Name: "standard", Provisioner: "example.com/ipam", Family: ipam.IPv4, Lengths: ipam.Lengths{Max: 32}}
		s.catalog.SetClass(inventory.ClassEntry{Class: standard, Default: true})
		s.waits("g", ipam.Request{Length: 30})
		leased := ipam.Class{Name: "leased", Family: ipam.IPv4}
		for _, c := range []struct {
			class ipam.Class
			want  map[int]int
		}{{standard, map[int]int{30: 1}}, {leased, map[int]int{30: 3}}} {
			if got := s.queue.Demand(c.class); !maps.Equal(got, c.want) {
				t.Errorf("the demand of class %s beside a claim of the default class is %v, want %v", c.class.Name, got, c.want)
			}
		}
	})
}
