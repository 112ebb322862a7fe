package operator

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

func TestMetricsSayHowFullAPoolIs(t *testing.T) {
	view := ledger.New(ledger.Options{Clock: clock.RealClock{}})
	alloc := allocator.NewParts(allocator.PartsOptions{Ledger: view, Log: logr.Discard()})
	defer alloc.Close()
	for _, pool := range []ipam.Pool{
		{Key: ipam.PoolNamed("shared"), Family: ipam.IPv4, CIDR: netip.MustParsePrefix("10.0.0.0/24"), Withheld: space.NewRanges(netip.MustParsePrefix("10.0.0.0/24"), []space.Range{space.RangeOf(netip.MustParsePrefix("10.0.0.0/28"))})},
		{Key: ipam.LocalPoolNamed("team", "own"), Family: ipam.IPv6, CIDR: netip.MustParsePrefix("2001:db8::/64")},
	} {
		alloc.Catalogue.SetPool(pool)
		view.Describe(pool)
	}
	alloc.Catalogue.SetPool(ipam.Pool{Key: ipam.PoolNamed("without-cidr")})
	const want = `
# HELP cadastre_pool_addresses Addresses of a pool by what becomes of them: allocated, available, withheld. Together they are all that the pool has.
# TYPE cadastre_pool_addresses gauge
cadastre_pool_addresses{pool="own",pool_kind="LocalIPPool",pool_namespace="team",state="allocated"} 0
cadastre_pool_addresses{pool="own",pool_kind="LocalIPPool",pool_namespace="team",state="available"} 1.8446744073709552e+19
cadastre_pool_addresses{pool="own",pool_kind="LocalIPPool",pool_namespace="team",state="withheld"} 0
cadastre_pool_addresses{pool="shared",pool_kind="IPPool",pool_namespace="",state="allocated"} 0
cadastre_pool_addresses{pool="shared",pool_kind="IPPool",pool_namespace="",state="available"} 240
cadastre_pool_addresses{pool="shared",pool_kind="IPPool",pool_namespace="",state="withheld"} 16
# HELP cadastre_pool_allocations Blocks of a pool that are held.
# TYPE cadastre_pool_allocations gauge
cadastre_pool_allocations{pool="own",pool_kind="LocalIPPool",pool_namespace="team"} 0
cadastre_pool_allocations{pool="shared",pool_kind="IPPool",pool_namespace=""} 0
`
	if err := testutil.CollectAndCompare(newPoolCollector(alloc), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
