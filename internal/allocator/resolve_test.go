package allocator

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// TestUnservableRequestReturnsReason requests objects that are missing or not allowed, on
// a replica that has seen everything.
func TestUnservableRequestReturnsReason(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		a.catalog.SetProject("ns", "ns")
		pool := openParent(a)
		a.catalog.SetPool(ipam.Pool{
			Key: ipam.PoolNamed("withheld"), CIDR: netip.MustParsePrefix("10.0.0.0/24"), Family: ipam.IPv4, Lengths: ipam.Lengths{Min: 24, Max: 32}, OnExhaustion: ipam.OnExhaustionWait,
			Withheld: space.NewRanges(netip.MustParsePrefix("10.0.0.0/24"), []space.Range{space.RangeOf(netip.MustParsePrefix("10.0.0.0/24"))}),
		})
		a.catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "foreign", Family: ipam.IPv4}})
		a.catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "west", Native: true, Family: ipam.IPv4, Lengths: ipam.Lengths{Min: 20, Max: 28}}})
		a.catalog.SetPool(ipam.Pool{Key: ipam.PoolNamed("waits"), Home: ipam.PoolNamed("none"), Lengths: ipam.Lengths{Min: 0, Max: 128}, Classes: []string{"west"}})
		claim := ipam.Name{Namespace: "ns", Name: "x"}
		none := func(map[string]string) bool { return false }
		for name, c := range map[string]struct {
			request ipam.Request
			want    string
		}{
			"nothing is missing":                           {ipam.Request{Claim: claim, Pool: pool.Key, Length: 28}, ""},
			"its namespace is not known":                   {ipam.Request{Claim: ipam.Name{Namespace: "new", Name: "x"}, Pool: pool.Key, Length: 28}, "the namespace new has not been seen"},
			"another operator's class":                     {ipam.Request{Claim: claim, Class: "foreign"}, `the IPClass "foreign" is served by another provisioner`},
			"a class that is not there":                    {ipam.Request{Claim: claim, Class: "none"}, `there is no IPClass "none" that this namespace may use`},
			"its selector selects nothing":                 {ipam.Request{Claim: claim, Selects: none, Length: 28}, "spec.poolSelector selects no pool that this namespace may use"},
			"a longer block than there are":                {ipam.Request{Claim: claim, Pool: pool.Key, Length: 33}, "33"},
			"a block of another pool":                      {ipam.Request{Claim: claim, Pool: pool.Key, Block: netip.MustParsePrefix("10.1.0.0/28"), Length: ipam.NoLength}, "10.1.0.0/28"},
			"nothing can ever be free":                     {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("withheld"), Length: 28}, "no /28 can be handed out"},
			"a class whose pool waits for its parent":      {ipam.Request{Claim: claim, Class: "west", Length: 28}, "pool waits has no CIDR yet"},
			"a family of a pool that waits for its parent": {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("waits"), Family: ipam.IPv4, Length: 28}, "pool waits has no CIDR yet"},
			"a block of a pool that waits for its parent":  {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("waits"), Block: netip.MustParsePrefix("10.1.0.0/28"), Length: ipam.NoLength}, "pool waits has no CIDR yet"},
			"a pool that is not there":                     {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("none"), Length: 28}, `there is no IPPool "none" that this namespace may use`},
		} {
			res, err := a.Resolve(t.Context(), c.request)
			if c.want == "" && (err != nil || !slices.Equal(keysOf(res.Pools), []ipam.PoolKey{pool.Key})) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || len(res.Pools) > 0) {
				t.Errorf("%s: got %+v, %v; want %q", name, res.Pools, err, c.want)
			}
		}
		a.queue.AddSource(func() bool { return false })
		if _, err := a.Resolve(t.Context(), ipam.Request{Claim: claim, Pool: pool.Key, Length: 28}); !errors.Is(err, ipam.ErrNotSynced) {
			t.Errorf("before all has been seen: got %v, want %v", err, ipam.ErrNotSynced)
		}
	})
}

func keysOf(pools []ipam.Pool) []ipam.PoolKey {
	keys := make([]ipam.PoolKey, len(pools))
	for i, pool := range pools {
		keys[i] = pool.Key
	}
	return keys
}
