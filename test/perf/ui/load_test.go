package ui

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	stored "github.com/cadastre-dev/cadastre/test/framework/records"
)

// pools have the same number of blocks each: /20s of 10.0.0.0/15.
const pools = 32

// world holds a control plane without the operator, so that records can be stored as they are.
type world struct {
	*suite.World
	records int
}

func load(t *testing.T) *world {
	w := &world{World: suite.Start(t, cluster.Options{})}
	w.Created(build.Pool("core").CIDR("10.0.0.0/15").Obj())
	for i := range pools {
		w.Created(build.Pool(site(i)).Child("core", 20).CIDR(space(i).String()).Obj())
	}
	for i := range stored.Namespaces {
		w.Namespace(stored.Namespace(i))
	}
	w.Namespace(cluster.Namespace)
	stored.Store(t, w, pools, func(i int) ipam.Record {
		pool := ipam.PoolNamed(site(i))
		return ipam.Record{
			Name: convert.RecordOfPool(cluster.Namespace, pool), Block: space(i), Pool: ipam.PoolNamed("core"),
			Holder: convert.HolderOfPool(pool), HolderUID: site(i), Purpose: ipam.PurposePool, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound,
		}
	})
	return w
}

func site(i int) string { return fmt.Sprintf("site-%02d", i) }

// space returns that of a pool.
func space(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i / 16), byte(i % 16 * 16), 0}), 20)
}

// grow stores records until there are so many. Blocks lie in groups with gaps between them, and
// of each pool some that follow each other are retained, and some are cooling.
func (w *world) grow(records int) {
	w.Helper()
	before := w.records
	stored.Store(w, w, records-before, func(n int) ipam.Record {
		i := before + n
		at := space(i % pools).Addr().As4()
		place := i / pools * 17 / 13 // of every 17 addresses 13 are held
		at[2] += byte(place >> 8)
		at[3] = byte(place)
		record := stored.Of(i, site(i%pools), netip.AddrFrom4(at))
		switch pool, nth := i%pools, i/pools; {
		case nth/200 == pool%16:
			record.State = ipam.StateRetained
		case nth/150 == 20-pool%20:
			record.State = ipam.StateCooling
		}
		return record
	})
	w.records = records
}
