package ipclass

import (
	"time"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
)

// changedPools expects that the classes of a cluster-scoped pool are enqueued when it changes.
func changedPools(e *classes) {
	q := e.Started(e.by.changes())
	e.Applied(build.Class("gold").Default().Obj(), build.Class("silver").Obj())
	q.Enqueued("gold", "silver")
	pool := build.Pool("p").CIDR("10.0.0.0/24").Classes("gold").Obj()
	e.Created(pool)
	q.Enqueued("gold")
	story.Edited(e.World, pool, func(p *v1alpha1.IPPool) { p.Spec.ClassNames = []string{"silver"} })
	q.Enqueued("gold", "silver")
	e.Created(build.Pool("p").CIDR("10.0.1.0/24").Classes("gold").In(story.Team))
	q.Enqueued()
}

// changedRecords expects that the classes of a pool are enqueued when a block of it is added or
// removed, and when its own record is, but not more often than they are counted.
func changedRecords(e *classes) {
	e.Created(build.Pool("p").CIDR("10.0.0.0/24").Classes("gold", "silver").Obj(), build.Pool("p").CIDR("10.0.1.0/24").Classes("gold").In(story.Team))
	q := e.Started(e.by.records())
	record := convert.Allocation(story.Block("a", "p", "10.0.0.0/28"))
	e.Created(record)
	q.Enqueued("gold", "silver")
	story.Edited(e.World, record, func(r *v1alpha1.IPAllocation) { r.Spec.ReclaimPolicy = v1alpha1.ReclaimRetain })
	q.Enqueued()
	e.Forced(record)
	q.Enqueued("gold after 1s", "silver after 1s")
	local := story.Block("b", "p", "10.0.1.0/28")
	local.Pool = ipam.PoolKey{Kind: ipam.PoolKindLocalIPPool, Namespace: story.Team, Name: "p"}
	e.Recorded(local)
	q.Enqueued()
	e.Passes(2 * time.Second)
	own := story.Block("p", "above", "10.0.0.0/24")
	own.Name, own.Holder, own.Purpose = ipam.Name{Namespace: story.System, Name: "ippool.p"}, convert.HolderOfPool(ipam.PoolNamed("p")), ipam.PurposePool
	e.Recorded(own)
	q.Enqueued("gold", "silver")
}
