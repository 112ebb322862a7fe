package convert

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	provider "sigs.k8s.io/cluster-api-ipam-provider-in-cluster/api/v1alpha2"

	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

// inClusterPool returns a pool with the spec.
func inClusterPool(spec provider.InClusterIPPoolSpec) *incluster.InClusterIPPool {
	pool := &incluster.InClusterIPPool{Spec: spec}
	pool.Namespace, pool.Name = "team", "p"
	return pool
}

// TestInClusterPool compares what a pool occupies, and hands out, with a twin that sets a bit for each
// address of a /24.
func TestInClusterPool(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		entry := func(set []bool) string {
			from := random.IntN(256)
			to := min(255, from+random.IntN(20))
			switch random.IntN(3) {
			case 0:
				set[from] = true
				return fmt.Sprintf("10.0.0.%d", from)
			case 1:
				for i := from &^ 15; i <= from|15; i++ {
					set[i] = true
				}
				return fmt.Sprintf("10.0.0.%d/28", from) // host bits are ignored
			}
			for i := from; i <= to; i++ {
				set[i] = true
			}
			return fmt.Sprintf("10.0.0.%d-10.0.0.%d", from, to)
		}
		occupied, excluded := make([]bool, 256), make([]bool, 256)
		spec := provider.InClusterIPPoolSpec{Prefix: 24, AllocateReservedIPAddresses: random.IntN(2) == 0}
		for range 1 + random.IntN(8) {
			spec.Addresses = append(spec.Addresses, entry(occupied))
		}
		for range random.IntN(3) {
			spec.ExcludedAddresses = append(spec.ExcludedAddresses, entry(excluded))
		}
		gateway := random.IntN(256)
		spec.Gateway = fmt.Sprintf("10.0.0.%d", gateway)
		pool, errs := Pool(inClusterPool(spec))
		for i := range occupied {
			occupied[i] = occupied[i] && !excluded[i]
		}
		if isEmpty := !slices.Contains(occupied, true); isEmpty || len(errs) > 0 {
			if isEmpty != (len(errs) > 0) {
				t.Fatalf("seed %d: %+v: got %v", seed, spec, errs)
			}
			continue
		}
		blocks := pool.Blocks()
		for i := range 256 {
			addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			isReserved := i == gateway || !spec.AllocateReservedIPAddresses && (i == 0 || i == 255)
			isOccupied := slices.ContainsFunc(blocks, func(b netip.Prefix) bool { return b.Contains(addr) })
			isFree := pool.Withheld.SizeIn(netip.PrefixFrom(addr, 32)) == space.Count{}
			if isOccupied != occupied[i] || isFree != (occupied[i] && !isReserved) {
				t.Fatalf("seed %d: %+v: %s is occupied %t and free %t, want %t and %t", seed, spec, addr, isOccupied, isFree, occupied[i], occupied[i] && !isReserved)
			}
		}
	}
}

func TestInClusterPoolBounds(t *testing.T) {
	var rows []messages.Row
	for name, c := range map[string]struct {
		prefix            int
		addresses         []string
		gateway           string
		allocatesReserved bool
		free              string
		refused           []string
		excluded          []string
	}{
		"all is excluded":                   {prefix: 24, addresses: []string{"10.0.0.1"}, excluded: []string{"10.0.0.0/28"}, refused: []string{"spec.excludedAddresses: Invalid value: 1: excludes all addresses"}},
		"an excluded address of IPv6":       {prefix: 24, addresses: []string{"10.0.0.1"}, excluded: []string{"::1"}, refused: []string{"spec.excludedAddresses[0]", "is not of the family"}},
		"a gateway of the other family":     {prefix: 24, addresses: []string{"10.0.0.1"}, gateway: "::1", refused: []string{"spec.gateway", "is not of the family of the addresses, IPv4"}},
		"prefix 0":                          {prefix: 0, addresses: []string{"10.0.0.1", "192.168.0.1"}, free: "2"},
		"a point-to-point subnet":           {prefix: 31, addresses: []string{"10.0.0.0/31"}, free: "0"},
		"... with its edges":                {prefix: 31, addresses: []string{"10.0.0.0/31"}, allocatesReserved: true, free: "2"},
		"a single address":                  {prefix: 32, addresses: []string{"10.0.0.7"}, gateway: "192.168.0.1", allocatesReserved: true, free: "1"},
		"a single address of IPv6":          {prefix: 128, addresses: []string{"2001:db8::7"}, gateway: "fe80::1", allocatesReserved: true, free: "1"},
		"a /64":                             {prefix: 64, addresses: []string{"2001:db8::/64"}, free: "18446744073709551615"},
		"a gateway outside the subnet":      {prefix: 24, addresses: []string{"10.0.0.1-10.0.0.9"}, gateway: "10.9.0.1", free: "9"},
		"a length of the other family":      {prefix: 64, addresses: []string{"10.0.0.1"}, refused: []string{"spec.prefix: Invalid value: 64: must be between 0 and 32"}},
		"an address outside the subnet":     {prefix: 30, addresses: []string{"10.0.0.2", "10.0.0.1-10.0.0.4"}, refused: []string{`spec.addresses[1]: Invalid value: "10.0.0.1-10.0.0.4": lies outside 10.0.0.0/30`}},
		"a range from high to low":          {prefix: 24, addresses: []string{"10.0.0.9-10.0.0.1"}, refused: []string{`spec.addresses[0]: Invalid value: "10.0.0.9-10.0.0.1": is not an address, range or CIDR`}},
		"an IPv4-mapped address":            {prefix: 24, addresses: []string{"::ffff:10.0.0.1"}, refused: []string{"spec.addresses[0]"}},
		"a zone":                            {prefix: 64, addresses: []string{"fe80::1%eth0"}, refused: []string{"spec.addresses[0]"}},
		"a gateway that is no address":      {prefix: 24, addresses: []string{"10.0.0.1"}, gateway: "x", refused: []string{`spec.gateway: Invalid value: "x": is not an IP address`}},
		"no address":                        {prefix: 24, refused: []string{"spec.addresses: Required value: set at least one"}},
		"more blocks than a pool's records": {prefix: 16, addresses: every(1025), refused: []string{"spec.addresses: Invalid value: 1025", "make 1025 CIDR blocks, and a pool can have 1024"}},
		"as many blocks as a pool can have": {prefix: 16, addresses: every(1024), allocatesReserved: true, free: "1024"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := provider.InClusterIPPoolSpec{Prefix: c.prefix, Addresses: c.addresses, Gateway: c.gateway, ExcludedAddresses: c.excluded, AllocateReservedIPAddresses: c.allocatesReserved}
			pool, errs := Pool(inClusterPool(spec))
			rows = append(rows, rowsOf("InClusterIPPool", errs...)...)
			text := ""
			if len(errs) > 0 {
				text = errs.ToAggregate().Error()
			}
			for _, want := range c.refused {
				if !strings.Contains(text, want) {
					t.Errorf("got %q, want that it says %q", text, want)
				}
			}
			if len(c.refused) > 0 || len(errs) > 0 {
				if len(c.refused) == 0 {
					t.Errorf("it is refused: %s", text)
				}
				return
			}
			if free := space.CountOf(pool.CIDR).Sub(pool.Withheld.Size()).String(); free != c.free {
				t.Errorf("it has %s free addresses, want %s", free, c.free)
			}
		})
	}
	messages.Golden(t, rows)
}

// every returns n addresses, no two of which are beside each other.
func every(n int) []string {
	addresses := make([]string, n)
	for i := range addresses {
		addresses[i] = fmt.Sprintf("10.0.%d.%d", 2*i/256, 2*i%256)
	}
	return addresses
}
