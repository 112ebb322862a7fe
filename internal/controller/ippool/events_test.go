package ippool

import (
	"time"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
)

// changedRecords expects that a pool is enqueued with its own record, and with the records of its
// blocks, but not more often than they are counted.
func changedRecords(e *pools) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj(), build.Pool("p").CIDR("10.0.0.0/24").In(story.Team))
	clusters := e.Started(e.controller.records(ipam.PoolKindIPPool))
	locals := e.Started(e.controller.records(ipam.PoolKindLocalIPPool))
	clusters.Enqueued("p")
	locals.Enqueued("team/p")
	record := convert.Allocation(story.Block("a", "p", "10.0.0.0/28"))
	e.Created(record)
	clusters.Enqueued("p")
	story.Edited(e.World, record, func(r *v1alpha1.IPAllocation) { r.Spec.ReclaimPolicy = v1alpha1.ReclaimRetain })
	clusters.Enqueued() // the counts are the same
	e.Forced(record)
	clusters.Enqueued("p after 1s")
	e.Passes(2 * time.Second)
	e.Recorded(story.Block("b", "p", "10.0.0.16/28"))
	clusters.Enqueued("p")
	story.Edited(e.World, convert.Allocation(e.own("p")), func(r *v1alpha1.IPAllocation) { r.Spec.State = v1alpha1.AllocationReleasing })
	clusters.Enqueued("p")
	locals.Enqueued()
}

// changedPools expects that a changed pool is enqueued, and the pools that wait for it.
func changedPools(e *pools) {
	clusters := e.Started(e.controller.changes(ipam.PoolKindIPPool))
	locals := e.Started(e.controller.changes(ipam.PoolKindLocalIPPool))
	e.Created(build.Pool("child").Child("parent", 26).Obj(), build.Pool("local").CIDR("10.1.0.0/24").In(story.Team))
	clusters.Enqueued("child")
	locals.Enqueued("team/local")
	e.Created(build.Pool("parent").CIDR("10.0.0.0/24").Obj())
	clusters.Enqueued("child", "parent")
	locals.Enqueued()
}
