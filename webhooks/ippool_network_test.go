package webhooks

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
)

// heldAddress returns the record of an address of a pool, held by a claim in namespace a.
func heldAddress(pool ipam.PoolKey, name, addr, gateway string) ipam.Record {
	return ipam.Record{
		Name: ipam.Name{Namespace: "a", Name: name}, UID: name, Block: netip.MustParsePrefix(addr + "/32"), Pool: pool,
		Holder: claimHolder(name), Purpose: ipam.PurposeClaim, State: ipam.StateBound, Gateway: convert.GatewayGiven(gateway),
	}
}

// TestNetworkUpdateWarnsOfHeldAddresses covers addresses that were handed out before.
func TestNetworkUpdateWarnsOfHeldAddresses(t *testing.T) {
	const formerTwo = "spec.network.gateway: 10.0.0.1 was handed out with 2 addresses still held, and stays withheld until the last is released: make such claims again, or configure the hosts; kubectl ipam check lists them"
	const settings = ": the former values were handed out with 3 addresses still held, and stay in their claims: make such claims again, or configure the hosts; kubectl ipam check lists them"
	network := func(edit func(*v1alpha1.PoolNetwork)) *v1alpha1.PoolNetwork {
		n := &v1alpha1.PoolNetwork{PrefixLength: 24, Gateway: "10.0.0.1"}
		edit(n)
		return n
	}
	same := func(*v1alpha1.PoolNetwork) {}
	var rows []messages.Row
	for name, tc := range map[string]struct {
		before, after *v1alpha1.PoolNetwork
		nothingHeld   bool
		want          []string
	}{
		"no network":                       {},
		"nothing changes":                  {before: network(same), after: network(same)},
		"a setting that is not handed out": {before: network(same), after: network(func(n *v1alpha1.PoolNetwork) { n.AllocateEdgeAddresses = true })},
		"the gateway":                      {before: network(same), after: network(func(n *v1alpha1.PoolNetwork) { n.Gateway = "10.0.0.2" }), want: []string{formerTwo}},
		"the gateway, nothing is held":     {before: network(same), after: network(func(n *v1alpha1.PoolNetwork) { n.Gateway = "10.0.0.2" }), nothingHeld: true},
		"the gateway goes":                 {before: network(same), after: network(func(n *v1alpha1.PoolNetwork) { n.Gateway = "" }), want: []string{formerTwo}},
		"the gateway comes":                {before: network(func(n *v1alpha1.PoolNetwork) { n.Gateway = "" }), after: network(same)},
		"to an address that is held":       {before: network(same), after: network(func(n *v1alpha1.PoolNetwork) { n.Gateway = "10.0.0.9" }), want: []string{"spec.network.gateway: 10.0.0.9/32 conflicts with 10.0.0.9/32 of pool p, held by IPClaim a/x: choose another address for the gateway, or have that one released", formerTwo}},
		"name servers":                     {before: network(same), after: network(func(n *v1alpha1.PoolNetwork) { n.DNSServers = []string{"10.0.0.53"} }), want: []string{"spec.network.dnsServers" + settings}},
		"search domains, MTU and VLAN":     {before: network(same), after: network(func(n *v1alpha1.PoolNetwork) { n.SearchDomains, n.MTU, n.VLAN = []string{"example.org"}, 1400, 7 }), want: []string{"spec.network.searchDomains, spec.network.mtu, spec.network.vlan" + settings}},
		"name servers, nothing is held":    {before: network(same), after: network(func(n *v1alpha1.PoolNetwork) { n.DNSServers = []string{"10.0.0.53"} }), nothingHeld: true},
		"a pool that had another gateway":  {before: network(func(n *v1alpha1.PoolNetwork) { n.Gateway = "10.0.0.2" }), after: network(func(n *v1alpha1.PoolNetwork) { n.Gateway = "10.0.0.3" })},
	} {
		t.Run(name, func(t *testing.T) {
			pool := func(n *v1alpha1.PoolNetwork) *v1alpha1.IPPool {
				return build.Pool("p").CIDR("10.0.0.0/24").With(func(s *v1alpha1.IPPoolSpec) { s.Network = n }).Obj()
			}
			r := replica.New(replica.Options{})
			r.Catalog.RecordObject(pool(tc.before))
			if !tc.nothingHeld {
				key := ipam.PoolNamed("p")
				r.Ledger.Load([]ipam.Record{
					heldAddress(key, "x", "10.0.0.9", "10.0.0.1"), heldAddress(key, "y", "10.0.0.8", "10.0.0.1"), heldAddress(key, "z", "10.0.0.7", "fe80::1"),
				}, nil)
			}
			shared := &services{Options: Options{Ledger: r.Ledger, Catalog: r.Catalog}}
			got, err := shared.updatePool(pool(tc.before), pool(tc.after))
			if err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("\ngot:  %q, %v\nwant: %q", got, err, tc.want)
			}
			for _, warning := range got {
				values := []string{"10.0.0.9/32", "10.0.0.1", "3 addresses"}
				value := values[slices.IndexFunc(values, func(v string) bool { return strings.Contains(warning, v) })]
				rows = append(rows, messages.Row{Object: "IPPool", On: "update", Answer: "warning", Value: value, Message: warning})
			}
		})
	}
	messages.Golden(t, rows)
}

// TestGatewayHolderIsNamedOnlyToSameProject covers a LocalIPPool that lies in a shared pool.
func TestGatewayHolderIsNamedOnlyToSameProject(t *testing.T) {
	r := replica.New(replica.Options{})
	r.Catalog.SetProject("a", "blue")
	r.Catalog.SetProject("b", "red")
	shared := ipam.Pool{Key: ipam.PoolNamed("shared"), Home: ipam.DomainNamed("default", ipam.IPv4), CIDR: netip.MustParsePrefix("10.0.0.0/24")}
	r.Ledger.Describe(shared)
	r.Ledger.Load([]ipam.Record{heldAddress(shared.Key, "x", "10.0.0.9", "")}, nil)
	for namespace, want := range map[string]string{
		"a": "spec.network.gateway: 10.0.0.9/32 conflicts with 10.0.0.9/32 of pool shared, held by IPClaim a/x: choose another address for the gateway, or have that one released",
		"b": "spec.network.gateway: 10.0.0.9/32 is in use in pool shared: choose another address for the gateway, or have that one released",
	} {
		own := ipam.Pool{
			Key: ipam.LocalPoolNamed(namespace, "own"), Home: shared.Key, CIDR: netip.MustParsePrefix("10.0.0.128/25"),
			Network: &ipam.Network{Length: 24, Gateway: netip.MustParseAddr("10.0.0.9")},
		}
		if got := (&services{Options: Options{Ledger: r.Ledger, Catalog: r.Catalog}}).gatewayHeld(own); !slices.Equal(got, []string{want}) {
			t.Errorf("\ngot:  %q\nwant: %q", got, want)
		}
	}
}
