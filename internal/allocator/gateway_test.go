package allocator

import (
	"net/netip"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestRecordStatesAllocatedGateway covers each way to a record. The gateway of the pool is
// 10.0.0.1.
func TestRecordStatesAllocatedGateway(t *testing.T) {
	networked := parent()
	networked.Network = &ipam.Network{Length: 16, Gateway: netip.MustParseAddr("10.0.0.1")}
	order := func(length int) Order { return orderFromPools(claimOrder("x", length), networked) }
	inUse := func(gateway string) Order {
		o := order(32)
		o.Terms.Block, o.Gateway = netip.MustParsePrefix("10.0.0.9/32"), convert.GatewayGiven(gateway)
		return o
	}
	retained := heldBlock("x", "10.0.0.7/32")
	retained.Name.Name, retained.State, retained.Reclaim, retained.Gateway = "x-former", ipam.StateRetained, ipam.ReclaimRetain, netip.MustParseAddr("10.0.0.77")
	for name, c := range map[string]struct {
		before ipam.Record
		act    func(*testing.T, *Allocator) (ipam.Record, error)
		want   string
	}{
		"an address": {act: func(t *testing.T, a *Allocator) (ipam.Record, error) { return a.Allocate(t.Context(), order(32)) }, want: "10.0.0.1"},
		"a block":    {act: func(t *testing.T, a *Allocator) (ipam.Record, error) { return a.Allocate(t.Context(), order(30)) }},
		"an address that is in use": {act: func(t *testing.T, a *Allocator) (ipam.Record, error) {
			return a.RecordExisting(t.Context(), inUse("10.0.0.77"), networked.Key)
		}, want: "10.0.0.77"},
		"an address that is in use without gateway": {act: func(t *testing.T, a *Allocator) (ipam.Record, error) {
			return a.RecordExisting(t.Context(), inUse(""), networked.Key)
		}},
		"an IPAddress": {act: func(t *testing.T, a *Allocator) (ipam.Record, error) {
			return a.RecordAddress(t.Context(), ipam.Name{Namespace: "ns", Name: "y"}, networked.Key, Address{Address: "10.0.0.9", Gateway: "10.0.0.77"})
		}, want: "10.0.0.77"},
		"a retained address": {before: retained, act: func(t *testing.T, a *Allocator) (ipam.Record, error) { return a.Allocate(t.Context(), order(32)) }, want: "10.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
				a.catalog.SetPool(networked)
				a.catalog.SetProject("ns", "")
				a.ledger.Describe(networked)
				if c.before.Name.Name != "" {
					api.stores(t, c.before)
				}
				record, err := c.act(t, a)
				if err != nil {
					t.Fatal(err)
				}
				if got := api.stored(record.Name).Spec.Gateway; got != c.want || convert.GatewayGiven(got) != record.Gateway {
					t.Errorf("stored is the gateway %q, and returned %s; want %q", got, record.Gateway, c.want)
				}
			})
		})
	}
}

// TestPreviewOfRetainedAddressHasCurrentGateway covers a dry run.
func TestPreviewOfRetainedAddressHasCurrentGateway(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		networked := parent()
		networked.Network = &ipam.Network{Length: 16, Gateway: netip.MustParseAddr("10.0.0.1")}
		retained := heldBlock("x", "10.0.0.7/32")
		retained.State, retained.Reclaim, retained.Gateway = ipam.StateRetained, ipam.ReclaimRetain, netip.MustParseAddr("10.0.0.77")
		api.stores(t, retained)
		record, err := a.Preview(orderFromPools(claimOrder("x", 32), networked))
		if err != nil || record.Block != retained.Block || record.Gateway != networked.Network.Gateway {
			t.Errorf("got %s with the gateway %s, %v", record.Block, record.Gateway, err)
		}
	})
}
