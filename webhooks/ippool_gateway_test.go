package webhooks

import (
	"net/netip"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
)

// TestGatewayAtSubnetEdgeIsRefused covers each kind of subnet.
func TestGatewayAtSubnetEdgeIsRefused(t *testing.T) {
	var rows []messages.Row
	for name, tc := range map[string]struct {
		cidr, gateway string
		length        int32
		forHosts      bool
		want          string // warning or error
	}{
		"the network address":                  {"10.0.0.0/24", "10.0.0.0", 24, false, "error"},
		"the broadcast address":                {"10.0.0.0/24", "10.0.0.255", 24, false, "error"},
		"an edge that is not of the pool":      {"10.0.0.64/26", "10.0.0.255", 24, false, "error"},
		"the network address, which is a host": {"10.0.0.0/24", "10.0.0.0", 24, true, "warning"},
		"a host":                               {"10.0.0.0/24", "10.0.0.1", 24, false, ""},
		"no gateway":                           {"10.0.0.0/24", "", 24, false, ""},
		"a point-to-point subnet":              {"10.0.0.0/31", "10.0.0.0", 31, false, ""},
		"a subnet of one address":              {"10.0.0.0/32", "10.0.0.0", 32, false, ""},
		"the subnet-router anycast address":    {"2001:db8::/64", "2001:db8::", 64, false, ""},
		"a child without a CIDR":               {"", "10.0.0.0", 24, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pool := build.Pool("p").CIDR(tc.cidr).Network(tc.length, tc.gateway).With(func(s *v1alpha1.IPPoolSpec) { s.Network.AllocateEdgeAddresses = tc.forHosts }).Obj()
			cidr, _ := netip.ParsePrefix(tc.cidr)
			warnings, errs := edgeGateway(pool, cidr)
			if len(errs) > 0 != (tc.want == "error") || len(warnings) > 0 != (tc.want == "warning") {
				t.Errorf("got %v, and the warnings %q, want the %s", errs, warnings, tc.want)
			}
			if _, errs := convert.Pool(pool); tc.cidr != "" && len(errs) > 0 {
				t.Errorf("a pool that is stored cannot be read: %v", errs)
			}
			for _, warning := range warnings {
				rows = append(rows, messages.Row{Object: "IPPool", On: messages.CreateOrUpdate, Answer: "warning", Value: tc.gateway, Message: warning})
			}
			if name == "the network address" {
				rows = append(rows, messages.Row{Object: "IPPool", On: messages.CreateOrUpdate, Answer: messages.Invalid, Value: tc.gateway, Message: errs.ToAggregate().Error()})
			}
		})
	}
	messages.Golden(t, rows)
}

// TestUnchangedGatewayIsNotValidated covers the updates of a pool from before the rule.
func TestUnchangedGatewayIsNotValidated(t *testing.T) {
	pool := func(edit func(*v1alpha1.IPPoolSpec)) *v1alpha1.IPPool {
		return build.Pool("p").CIDR("10.0.0.0/24").Network(24, "10.0.0.255").With(edit).Obj()
	}
	before := pool(func(*v1alpha1.IPPoolSpec) {})
	r := replica.New(replica.Options{})
	shared := &services{Options: Options{Ledger: r.Ledger, Catalog: r.Catalog}}
	for name, tc := range map[string]struct {
		edit    func(*v1alpha1.IPPoolSpec)
		refused bool
	}{
		"no network":              {func(s *v1alpha1.IPPoolSpec) { s.Network = nil }, false},
		"another field":           {func(s *v1alpha1.IPPoolSpec) { s.Reserved = []string{"10.0.0.7"} }, false},
		"a gateway that is one":   {func(s *v1alpha1.IPPoolSpec) { s.Network.Gateway = "10.0.0.1" }, false},
		"no gateway":              {func(s *v1alpha1.IPPoolSpec) { s.Network.Gateway = "" }, false},
		"the other edge":          {func(s *v1alpha1.IPPoolSpec) { s.Network.Gateway = "10.0.0.0" }, true},
		"the edges are for hosts": {func(s *v1alpha1.IPPoolSpec) { s.Network.AllocateEdgeAddresses = true }, false},
	} {
		if _, err := shared.updatePool(before, pool(tc.edit)); (err != nil) != tc.refused {
			t.Errorf("%s: got %v, refused should be %t", name, err, tc.refused)
		}
	}
}

func TestGatewayIsSameOnlyIfBothNetworksHaveIt(t *testing.T) {
	network, other := &v1alpha1.PoolNetwork{Gateway: "10.0.0.1"}, &v1alpha1.PoolNetwork{Gateway: "10.0.0.2"}
	for _, c := range []struct {
		a, b *v1alpha1.PoolNetwork
		want bool
	}{
		{nil, nil, true}, {network, nil, false}, {nil, network, false}, {network, other, false}, {network, network.DeepCopy(), true},
	} {
		if got := sameGateway(c.a, c.b); got != c.want {
			t.Errorf("%+v and %+v: %t", c.a, c.b, got)
		}
	}
}
