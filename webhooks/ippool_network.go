package webhooks

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// gatewayHeld warns if the gateway of a pool is an address that a claim holds, in the pool or
// elsewhere in its routing domain.
func gatewayHeld(p allocator.Parts, pool ipam.Pool) []string {
	if pool.Network == nil || !pool.Network.Gateway.IsValid() {
		return nil
	}
	gateway := pool.Network.Gateway
	record, isHeld := p.Ledger.HolderAt(pool, gateway)
	if !isHeld {
		return nil
	}
	taken := &ipam.TakenError{Block: netip.PrefixFrom(gateway, gateway.BitLen()), Pool: record.Pool, Holder: record.Holder, Overlap: record.Block}
	return []string{fmt.Sprintf("%s: %v: choose another address for the gateway, or have that one released", gatewayField, p.Catalogue.Redacted(pool.Key.Namespace, taken))}
}

// networkWarnings returns what an update of the network means for the addresses that are held:
// their holders keep what was handed out with them.
func networkWarnings(p allocator.Parts, before, after *v1alpha1.PoolNetwork, pool ipam.Pool) []string {
	changed := changedSettings(before, after)
	if len(changed) == 0 {
		return nil
	}
	former := netip.Addr{}
	if before != nil {
		former = convert.GatewayGiven(before.Gateway)
	}
	all, with := p.Ledger.HandedOut(pool.Key, former)
	held := func(n int) string { return ipam.Numbered(n, "address", "addresses") + " still held" }
	var warnings []string
	if changed[0] == gatewayField {
		changed, warnings = changed[1:], gatewayHeld(p, pool)
		if former.IsValid() && with > 0 {
			warnings = append(warnings, fmt.Sprintf("%s: %s was handed out with %s, and stays withheld until the last is released: make such claims again, or configure the hosts; kubectl ipam check lists them",
				gatewayField, former, held(with)))
		}
	}
	if len(changed) > 0 && all > 0 {
		warnings = append(warnings, fmt.Sprintf("%s: the former values were handed out with %s, and stay in their claims: make such claims again, or configure the hosts; kubectl ipam check lists them",
			strings.Join(changed, ", "), held(all)))
	}
	return warnings
}

// gatewayField is the field of the gateway.
const gatewayField = "spec.network.gateway"

// changedSettings are the fields of a network that are handed out with an address, and that an
// update changes; the gateway is the first. Whether there is a network, and its prefix length,
// do not change.
func changedSettings(before, after *v1alpha1.PoolNetwork) []string {
	a, b := cmp.Or(before, &v1alpha1.PoolNetwork{}), cmp.Or(after, &v1alpha1.PoolNetwork{})
	var changed []string
	for _, field := range []struct {
		name string
		same bool
	}{
		{gatewayField, a.Gateway == b.Gateway},
		{"spec.network.dnsServers", slices.Equal(a.DNSServers, b.DNSServers)},
		{"spec.network.searchDomains", slices.Equal(a.SearchDomains, b.SearchDomains)},
		{"spec.network.mtu", a.MTU == b.MTU},
		{"spec.network.vlan", a.VLAN == b.VLAN},
	} {
		if !field.same {
			changed = append(changed, field.name)
		}
	}
	return changed
}
