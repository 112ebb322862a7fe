package audit

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// setting represents a value that was handed out with an address and that is different in the
// pool now, by the field of the pool. A value is empty if it was or is not set.
type setting struct {
	pool              ipam.PoolKey
	field, given, now string
}

// address represents an address that a claim holds.
type address struct {
	addr   netip.Addr
	holder string
}

// networks finds the addresses that were handed out with other settings than their pools have.
// There is one note for each pool and value that it had.
func (j *judgement) networks() {
	found := map[setting][]address{}
	for i := range j.Claims {
		j.compareClaim(&j.Claims[i], found)
	}
	for i := range j.Addresses {
		j.compareAddress(&j.Addresses[i], found)
	}
	for s, addresses := range found {
		j.differs(s, addresses)
	}
}

// compareClaim compares the settings that an IPClaim was given with the settings that its pool
// would hand out now.
func (j *judgement) compareClaim(claim *Claim, found map[setting][]address) {
	pool := j.poolsBy[claim.Pool]
	block, err := netip.ParsePrefix(claim.Block)
	if !claim.Bound || pool == nil || err != nil {
		return
	}
	holder := convert.HolderOfClaim(claim.Name).String()
	claimSettings, poolSettings := settingsOf(claim.Network), settingsOf(convert.ClaimNetwork(pool.Network, ipam.Record{Block: block}))
	for i, field := range settings() {
		if claimSettings[i] != poolSettings[i] {
			s := setting{pool: pool.Key, field: field, given: claimSettings[i], now: poolSettings[i]}
			found[s] = append(found[s], address{block.Addr(), holder})
		}
	}
}

// compareAddress compares the settings of an IPAddress with the settings that its pool would hand
// out now.
func (j *judgement) compareAddress(a *Address, found map[setting][]address) {
	holder := convert.HolderOfAddressClaim(ipam.Name{Namespace: a.Name.Namespace, Name: a.Claim})
	for _, record := range j.holdersOf[holder] {
		pool := j.poolsBy[record.Pool]
		if record.Block.Addr() != a.Addr || pool == nil || !pool.CIDR.IsValid() || a.Prefix == nil {
			continue
		}
		bits, gateway := pool.Subnet(record.Block)
		prefixField, gatewayField := "spec.network.prefixLength", "spec.network.gateway"
		if pool.Key.Kind.IsInCluster() {
			prefixField, gatewayField = "spec.prefix", "spec.gateway"
		}
		for _, s := range []setting{
			{pool.Key, prefixField, strconv.Itoa(int(*a.Prefix)), strconv.Itoa(bits)},
			{pool.Key, gatewayField, a.Gateway, textOf(gateway)},
		} {
			if s.given != s.now {
				found[s] = append(found[s], address{a.Addr, holder.String()})
			}
		}
	}
}

// settings returns the fields of a network that are handed out with an address.
func settings() []string {
	return []string{"spec.network.prefixLength", "spec.network.gateway", "spec.network.dnsServers", "spec.network.searchDomains", "spec.network.mtu", "spec.network.vlan"}
}

// settingsOf returns the values of the settings, each empty if it is not set.
func settingsOf(n *v1alpha1.ClaimNetwork) []string {
	if n == nil {
		return make([]string, len(settings()))
	}
	number := func(n int32) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(int(n))
	}
	return []string{
		strconv.Itoa(int(n.PrefixLength)), n.Gateway, strings.Join(n.DNSServers, " "), strings.Join(n.SearchDomains, " "), number(n.MTU), number(n.VLAN),
	}
}

func (j *judgement) differs(s setting, addresses []address) {
	slices.SortFunc(addresses, func(a, b address) int { return a.addr.Compare(b.addr) })
	examples := ipam.FormatList(addresses, mostExamples, func(a address) string { return a.addr.String() + " of " + a.holder }, "; ")
	f := j.add(NetworkDiffersFromPool, j.poolsBy[s.pool].object(), "", "%s is %s, and %s handed out with %s: %s: make these claims again, or configure their hosts",
		s.field, cmp.Or(s.now, "none"), ipam.FormatNumber(len(addresses), "address was", "addresses were"), cmp.Or(s.given, "none"), examples)
	f.Field, f.Given = s.field, s.given
}

func textOf(addr netip.Addr) string {
	if !addr.IsValid() {
		return ""
	}
	return addr.String()
}

// gateways finds the gateways of pools that are held by a claim of the same routing domain.
func (j *judgement) gateways() {
	var pools []*Pool
	for i := range j.Pools {
		if pool := &j.Pools[i]; pool.Network != nil && pool.Network.Gateway.IsValid() {
			pools = append(pools, pool)
		}
	}
	slices.SortFunc(pools, func(a, b *Pool) int { return a.Network.Gateway.Compare(b.Network.Gateway) })
	for i := range j.Records {
		record := &j.Records[i]
		if record.Holder.IsPool() || record.State != ipam.StateBound || j.young[record.Name] {
			continue
		}
		first, _ := slices.BinarySearchFunc(pools, record.Block.Addr(), func(p *Pool, addr netip.Addr) int { return p.Network.Gateway.Compare(addr) })
		for _, pool := range pools[first:] {
			if !record.Block.Contains(pool.Network.Gateway) {
				break
			}
			j.gatewayHeld(pool, record)
		}
	}
}

// gatewayHeld reports a gateway that lies in the block of a claim, of the same routing domain.
func (j *judgement) gatewayHeld(pool *Pool, record *Record) {
	domain, found := j.domainOf(pool.Key)
	if recordDomain, ok := j.domainOf(record.Pool); !found || !ok || recordDomain != domain {
		return
	}
	j.add(GatewayHeld, pool.object(), record.Block.String(), "has the gateway %s, which lies in %s of %s: choose another address for the gateway, or delete %s",
		pool.Network.Gateway, record.Block, record.Holder, record.Holder).Other = new(record.object())
}
