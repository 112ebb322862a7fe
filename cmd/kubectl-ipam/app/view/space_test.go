package view

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// objects puts a register together.
type objects struct{ register.Objects }

// pool adds a pool that is ready.
func (o *objects) pool(b *build.PoolBuilder) *objects {
	pool := b.Obj()
	pool.Status.Phase = v1alpha1.PoolReady
	o.Pools = append(o.Pools, *pool)
	return o
}

// held adds the record of a claim.
func (o *objects) held(pool, block string, state ipam.State) *objects {
	return o.record(pool, block, state, convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: fmt.Sprint("c-", len(o.Allocations))}), ipam.PurposeClaim)
}

// carved adds the record of a child pool.
func (o *objects) carved(pool, block, child string) *objects {
	return o.record(pool, block, ipam.StateBound, convert.HolderOfPool(ipam.PoolNamed(child)), ipam.PurposePool)
}

// occupied adds a child pool that occupies ranges of a CIDR, and its record.
func (o *objects) occupied(parent, child, cidr, ranges string, blocks ...string) *objects {
	pool := build.Pool(child).CIDR(cidr).Occupies(ranges)
	o.pool(pool.With(func(s *v1alpha1.IPPoolSpec) {
		s.ParentRef = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: parent}
	})).carved(parent, blocks[0], child)
	o.Allocations[len(o.Allocations)-1].Spec.AdditionalCIDRs = blocks[1:]
	return o
}

func (o *objects) record(pool, block string, state ipam.State, holder ipam.Holder, purpose ipam.Purpose) *objects {
	obj := convert.Allocation(ipam.Record{
		Name: ipam.Name{Namespace: "team", Name: fmt.Sprint("r-", len(o.Allocations))}, UID: fmt.Sprint(len(o.Allocations)),
		Pool: ipam.PoolNamed(pool), Block: netip.MustParsePrefix(block), Holder: holder, Purpose: purpose, State: state,
	})
	obj.CreationTimestamp = metav1.NewTime(time.Unix(1000, 0))
	o.Allocations = append(o.Allocations, obj)
	return o
}

func (o *objects) waits(claim *build.ClaimBuilder) *objects {
	o.Waiting = append(o.Waiting, *claim.Obj())
	return o
}

func (o *objects) build() *register.Register {
	o.RecordsRead = true
	return register.Build(&o.Objects)
}

// named returns one of its pools.
func (o *objects) named(t *testing.T, name string) *register.Pool {
	t.Helper()
	pool := o.build().Pool(ipam.PoolNamed(name))
	if pool == nil {
		t.Fatalf("there is no pool %s", name)
	}
	return pool
}
