package plugin

import (
	"context"
	"fmt"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	stored "github.com/cadastre-dev/cadastre/test/framework/records"
)

// world holds a control plane without the operator, so that records can be stored as they are.
type world struct {
	*suite.World
	pool    *v1alpha1.IPPool
	records int
}

// load stores a pool and so many records of single addresses, one behind the other, as the
// operator makes them.
func load(t testing.TB, records int) *world {
	w := &world{suite.Start(t, cluster.Options{}), build.Pool("hosts").CIDR("10.0.0.0/12").Obj(), records}
	w.Created(w.pool)
	for i := range stored.Namespaces {
		w.Namespace(stored.Namespace(i))
	}
	stored.Store(t, w, records, record)
	return w
}

// record returns the i-th one of the pool.
func record(i int) ipam.Record { return stored.Of(i, "hosts", stored.Address(i)) }

// writeStatus writes the status of the pool, as the operator does; if mixed is true, as if some of the
// records were of larger blocks.
func (w *world) writeStatus(ctx context.Context, mixed bool) error {
	total, pool := 1<<20, w.pool
	allocated := w.records
	if mixed {
		allocated = total / 2
	}
	pool.Status = v1alpha1.PoolStatus{
		ObservedGeneration: pool.Generation, Phase: v1alpha1.PoolReady, AllocatedCIDR: pool.Spec.CIDR, IPFamily: v1alpha1.IPv4,
		Capacity: &v1alpha1.Capacity{
			Total: fmt.Sprint(total), Allocated: fmt.Sprint(allocated), Available: fmt.Sprint(total - allocated), Withheld: "0", OutOfRange: "0",
		},
		Allocations: int64(w.records), UtilizationPercent: int32(100 * allocated / total), LargestFreePrefix: "/13",
	}
	return w.Status().Update(ctx, pool)
}
