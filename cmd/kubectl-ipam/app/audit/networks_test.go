package audit

import (
	"fmt"
	"net/netip"
	"strconv"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// hosts returns a snapshot in which pool c has a network, with so many claims h0, h1 ... of its
// addresses, which were handed out with the former gateway 10.1.0.1, and the IPAddress m.
func hosts(n int, now *ipam.Network) *Snapshot {
	s := healthy()
	s.Pools[1].Network = now
	s.Claims[1].Network = convert.ClaimNetwork(now, s.record("b-record").Record)
	s.Addresses[0].Prefix, s.Addresses[0].Gateway = new(int32(16)), textOf(now.Gateway)
	for i := range n {
		s.hold("c", "h"+strconv.Itoa(i), "10.1.1."+strconv.Itoa(i)+"/32").Network = &v1alpha1.ClaimNetwork{PrefixLength: 16, Gateway: "10.1.0.1"}
	}
	return s
}

// hold adds a claim with a block of a pool.
func (s *Snapshot) hold(pool, name, block string) *Claim {
	return s.holdIn(ipam.PoolNamed(pool), ipam.Name{Namespace: "team", Name: name}, block)
}

func (s *Snapshot) holdIn(pool ipam.PoolKey, claim ipam.Name, block string) *Claim {
	record := recordOf(claim.Name+"-record", block, pool, convert.HolderOfClaim(claim))
	record.Name.Namespace = claim.Namespace
	s.Records = append(s.Records, record)
	s.Claims = append(s.Claims, Claim{Name: claim, UID: "uid-" + claim.Name, Record: record.Name.Name, Bound: true, Block: block, Pool: pool})
	return &s.Claims[len(s.Claims)-1]
}

// domain adds a routing domain with a root pool of its name.
func (s *Snapshot) domain(name, cidr string) {
	s.root(ipam.PoolNamed(name), ipam.DomainNamed(name, ipam.IPv4), cidr)
}

func (s *Snapshot) root(pool, home ipam.PoolKey, cidr string) {
	s.Pools = append(s.Pools, Pool{Pool: ipam.Pool{Key: pool, CIDR: netip.MustParsePrefix(cidr), Home: home}, UID: "uid-" + pool.Name, Recorded: cidr})
	record := recordOf("ippool."+pool.Name, cidr, home, convert.HolderOfPool(pool))
	record.Name.Namespace, record.Purpose = pool.Namespace, ipam.PurposePool
	s.Records = append(s.Records, record)
}

func TestJudgeComparesNetworksWithPools(t *testing.T) {
	gateway := &ipam.Network{Length: 16, Gateway: netip.MustParseAddr("10.1.0.3")}
	for name, c := range map[string]struct {
		snapshot func() *Snapshot
		want     []string
	}{
		"as the pools have it": {func() *Snapshot { return hosts(0, gateway) }, nil},
		"another gateway": {func() *Snapshot { return hosts(2, gateway) }, []string{
			"note NetworkDiffersFromPool IPPool c: spec.network.gateway is 10.1.0.3, and 2 addresses were handed out with 10.1.0.1: 10.1.1.0 of IPClaim team/h0; 10.1.1.1 of IPClaim team/h1: make these claims again, or configure their hosts",
		}},
		"many of them": {func() *Snapshot { return hosts(5, gateway) }, []string{
			"note NetworkDiffersFromPool IPPool c: spec.network.gateway is 10.1.0.3, and 5 addresses were handed out with 10.1.0.1: 10.1.1.0 of IPClaim team/h0; 10.1.1.1 of IPClaim team/h1; 10.1.1.2 of IPClaim team/h2; and 2 more: make these claims again, or configure their hosts",
		}},
		"several former values": {func() *Snapshot {
			s := hosts(2, gateway)
			s.Claims[3].Network.Gateway = ""
			return s
		}, []string{
			"note NetworkDiffersFromPool IPPool c: spec.network.gateway is 10.1.0.3, and 1 address was handed out with 10.1.0.1: 10.1.1.1 of IPClaim team/h1: make these claims again, or configure their hosts",
			"note NetworkDiffersFromPool IPPool c: spec.network.gateway is 10.1.0.3, and 1 address was handed out with none: 10.1.1.0 of IPClaim team/h0: make these claims again, or configure their hosts",
		}},
		"name servers, search domains, MTU, VLAN": {func() *Snapshot {
			s := hosts(1, &ipam.Network{Length: 16, Gateway: netip.MustParseAddr("10.1.0.4"), DNSServers: []netip.Addr{netip.MustParseAddr("10.1.0.53")}, SearchDomains: []string{"example.org"}, VLAN: 7})
			s.Claims[3].Network.Gateway, s.Claims[3].Network.MTU = "10.1.0.4", 1400
			return s
		}, []string{
			"note NetworkDiffersFromPool IPPool c: spec.network.dnsServers is 10.1.0.53, and 1 address was handed out with none: 10.1.1.0 of IPClaim team/h0: make these claims again, or configure their hosts",
			"note NetworkDiffersFromPool IPPool c: spec.network.mtu is none, and 1 address was handed out with 1400: 10.1.1.0 of IPClaim team/h0: make these claims again, or configure their hosts",
			"note NetworkDiffersFromPool IPPool c: spec.network.searchDomains is example.org, and 1 address was handed out with none: 10.1.1.0 of IPClaim team/h0: make these claims again, or configure their hosts",
			"note NetworkDiffersFromPool IPPool c: spec.network.vlan is 7, and 1 address was handed out with none: 10.1.1.0 of IPClaim team/h0: make these claims again, or configure their hosts",
		}},
		"an IPAddress": {func() *Snapshot {
			s := hosts(0, gateway)
			s.Addresses[0].Prefix, s.Addresses[0].Gateway = new(int32(24)), "10.1.0.1"
			return s
		}, []string{
			"note NetworkDiffersFromPool IPPool c: spec.network.gateway is 10.1.0.3, and 1 address was handed out with 10.1.0.1: 10.1.0.2 of IPAddressClaim team/m: make these claims again, or configure their hosts",
			"note NetworkDiffersFromPool IPPool c: spec.network.prefixLength is 16, and 1 address was handed out with 24: 10.1.0.2 of IPAddressClaim team/m: make these claims again, or configure their hosts",
		}},
		"a gateway that a claim holds": {func() *Snapshot {
			s := hosts(0, gateway)
			s.hold("c", "x", "10.1.0.3/32").Network = s.Claims[1].Network
			return s
		}, []string{"warning GatewayHeld IPPool c: has the gateway 10.1.0.3, which lies in 10.1.0.3/32 of IPClaim team/x: choose another address for the gateway, or delete IPClaim team/x"}},
		"a gateway outside of its pool that a claim holds": {func() *Snapshot {
			s := hosts(0, &ipam.Network{Length: 8, Gateway: netip.MustParseAddr("10.0.0.9")})
			s.Addresses[0].Prefix = new(int32(8))
			return s
		}, []string{"warning GatewayHeld IPPool c: has the gateway 10.0.0.9, which lies in 10.0.0.0/24 of IPClaim team/a: choose another address for the gateway, or delete IPClaim team/a"}},
		"a gateway that a claim of another routing domain holds": {func() *Snapshot {
			s := hosts(0, gateway)
			s.domain("lab", "10.1.0.0/24")
			s.hold("lab", "x", "10.1.0.3/32")
			return s
		}, nil},
		"one address in two routing domains": {func() *Snapshot {
			s := healthy()
			s.domain("lab", "10.0.0.0/8")
			s.hold("lab", "x", "10.1.0.1/32")
			return s
		}, []string{"note BlockInSeveralDomains RoutingDomain default: 1 block overlaps with a block of another routing domain: 10.1.0.1/32 of IPClaim team/x in lab with 10.1.0.1/32 of IPClaim team/b in default: that is as it should be if these networks are never connected; otherwise give their pools one routing domain, or other CIDRs"}},
		"one address in LocalIPPools of two namespaces": {func() *Snapshot {
			s := &Snapshot{}
			for _, namespace := range []string{"east", "west"} {
				pool := ipam.LocalPoolNamed(namespace, "machines")
				s.root(pool, ipam.LocalDomainNamed(namespace, "default", ipam.IPv4), "10.0.0.0/24")
				s.holdIn(pool, ipam.Name{Namespace: namespace, Name: "m"}, "10.0.0.1/32")
			}
			return s
		}, []string{"note BlockInSeveralDomains RoutingDomain east/default: 1 block overlaps with a block of another routing domain: 10.0.0.1/32 of IPClaim west/m in west/default with 10.0.0.1/32 of IPClaim east/m in east/default: that is as it should be if these networks are never connected; otherwise give their pools one routing domain, or other CIDRs"}},
		"many addresses in many routing domains": {func() *Snapshot {
			s := healthy()
			for i := range 3 {
				name := "lab" + strconv.Itoa(i)
				s.domain(name, "10.0.0.0/8")
				s.hold(name, name+"-in", "10.0.0."+strconv.Itoa(i)+"/32")
				s.hold(name, name+"-same", "10.1.0.1/32")
			}
			return s
		}, []string{"note BlockInSeveralDomains RoutingDomain default: 6 blocks overlap with a block of another routing domain: 10.0.0.0/32 of IPClaim team/lab0-in in lab0 with 10.0.0.0/24 of IPClaim team/a in default; 10.0.0.1/32 of IPClaim team/lab1-in in lab1 with 10.0.0.0/24 of IPClaim team/a in default; 10.0.0.2/32 of IPClaim team/lab2-in in lab2 with 10.0.0.0/24 of IPClaim team/a in default; and 3 more: that is as it should be if these networks are never connected; otherwise give their pools one routing domain, or other CIDRs"}},
		"pools in two routing domains, of which one hands out nothing": {func() *Snapshot {
			s := healthy()
			s.domain("lab", "10.0.0.0/8")
			return s
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c.snapshot().expect(t, c.want, func(f *Finding) string {
				return fmt.Sprintf("%s %s %s: %s", f.Severity, f.Kind, f.Object, f.Message)
			})
		})
	}
}
