package register

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// TestUsageCountsEveryAddressOnce counts the addresses of a /22 one by one, with random
// blocks and ranges.
func TestUsageCountsEveryAddressOnce(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		first := random.IntN(512)
		pool := build.Pool("p").CIDR("10.0.0.0/22").Ranges(fmt.Sprintf("10.0.%d.%d-10.0.3.200", first/256, first%256)).Reserved("10.0.2.7", "10.0.2.128/25").Obj()
		pool.Status.FormerGateways = []string{"10.0.2.77", "10.0.2.130"} // one of them is reserved
		s, r := &store{}, Build(&Objects{Pools: []v1alpha1.IPPool{*pool}})
		used := space.New(r.Pools[0].CIDR)
		for i := range 40 {
			block, ok := used.FindFrom(netip.AddrFrom4([4]byte{10, 0, byte(random.IntN(4)), byte(random.IntN(256))}), 26+random.IntN(7))
			if !ok {
				continue
			}
			used.Use(block)
			purpose, holder := ipam.PurposeClaim, convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: fmt.Sprint(i)})
			if random.IntN(4) == 0 {
				purpose, holder = ipam.PurposePool, convert.HolderOfPool(ipam.PoolNamed(fmt.Sprint("child-", i)))
			}
			s.hold(ipam.PoolNamed("p"), block, purpose, holder)
			s.records[len(s.records)-1].Spec.State = []v1alpha1.AllocationState{v1alpha1.AllocationBound, v1alpha1.AllocationRetained, v1alpha1.AllocationCooling}[random.IntN(3)]
		}
		r = Build(&Objects{Pools: []v1alpha1.IPPool{*pool}, Allocations: s.records})
		got, _ := r.Pools[0].Usage()
		want := countOneByOne(r.Pools[0])
		want.LargestFree, want.Blocks = got.LargestFree, len(s.records)
		if got != want {
			t.Errorf("seed %d:\n got %+v\nwant %+v", seed, got, want)
		}
	}
}

func countOneByOne(p *Pool) Usage {
	var u Usage
	one := space.CountOf64(1)
	for address := p.CIDR.Addr(); p.CIDR.Contains(address); address = address.Next() {
		u.Total = u.Total.Add(one)
		single := netip.PrefixFrom(address, 32)
		isWithheld := p.Withheld.Overlaps(single)
		records := p.Overlapping(single)
		switch {
		case len(records) == 0 && isWithheld:
			u.Withheld = u.Withheld.Add(one)
		case len(records) == 0:
			u.Free = u.Free.Add(one)
		case isWithheld:
			u.Drained = u.Drained.Add(one)
		}
		for _, record := range records {
			switch {
			case record.Purpose == ipam.PurposePool:
				u.Carved = u.Carved.Add(one)
				continue
			case record.State == ipam.StateRetained:
				u.Retained = u.Retained.Add(one)
			case record.State == ipam.StateCooling:
				u.Cooling = u.Cooling.Add(one)
			}
			u.Held, u.Used = u.Held.Add(one), u.Used.Add(one)
		}
	}
	return u
}

func TestUsageOfPoolsWithoutRecordsOrCIDR(t *testing.T) {
	s := &store{}
	s.hold(ipam.PoolNamed("gone"), netip.MustParsePrefix("2001:db8::/64"), ipam.PurposeClaim, convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: "c"}))
	r := Build(&Objects{Pools: []v1alpha1.IPPool{*build.Pool("all").CIDR("::/0").Obj(), *build.Pool("waits").Child("all", 64).Obj()}, Allocations: s.records})
	for name, want := range map[string]struct {
		isKnown     bool
		total, held string
		largest     int
	}{
		"all":   {true, "340282366920938463463374607431768211456", "0", 0},
		"waits": {false, "0", "0", ipam.NoLength},
		"gone":  {false, "0", "18446744073709551616", ipam.NoLength},
	} {
		got, ok := r.Pool(ipam.PoolNamed(name)).Usage()
		if ok != want.isKnown || got.Total.String() != want.total || got.Held.String() != want.held || got.LargestFree != want.largest {
			t.Errorf("%s: %+v, %t; want %+v", name, got, ok, want)
		}
	}
}

func TestFormerGatewaysAreWithheld(t *testing.T) {
	pool := build.Pool("p").CIDR("10.0.0.0/24").Network(24, "10.0.0.2").Obj()
	pool.Status.FormerGateways = []string{"10.0.0.1", "fe80::1"}
	r := Build(&Objects{Pools: []v1alpha1.IPPool{*pool}})
	var got []string
	for _, w := range r.Pools[0].WithheldIn(netip.MustParsePrefix("10.0.0.0/30")) {
		got = append(got, w.From.String()+" "+w.Reason)
	}
	if want := []string{"10.0.0.0 network address", "10.0.0.1 former gateway", "10.0.0.2 gateway"}; !slices.Equal(got, want) {
		t.Errorf("withheld are %q, want %q", got, want)
	}
	if u, _ := r.Pools[0].Usage(); u.Withheld != space.CountOf64(4) {
		t.Errorf("%s addresses are withheld, want 4", u.Withheld)
	}
}
