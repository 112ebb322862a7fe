package ippool

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
)

// nodes returns a pool that occupies ranges of 10.0.0.0/24.
func nodes(ranges ...string) *v1alpha1.IPPool {
	return build.Pool("nodes").CIDR("10.0.0.0/24").Occupies(ranges...).Obj()
}

// edited changes the ranges of the pool nodes.
func (e *pools) edited(ranges ...string) {
	e.t.Helper()
	story.Edited(e.World, pool("nodes"), func(p *v1alpha1.IPPool) { p.Spec.Ranges = ranges })
}

// holds expects the blocks of the own records of a pool, one text for each record.
func (e *pools) holds(name string, want ...string) {
	e.t.Helper()
	e.Seen()
	var got []string
	for _, record := range e.RecordsOf(holder(name)) {
		var blocks []string
		for _, block := range record.Blocks() {
			blocks = append(blocks, block.String())
		}
		got = append(got, strings.Join(blocks, " "))
	}
	expectSame(e.t, got, want)
}

// expectSame expects the same texts, in any order.
func expectSame(t *testing.T, got, want []string) {
	t.Helper()
	slices.Sort(got)
	if want = slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

// allocated expects the reason of a pool's condition Allocated, and a part of its message.
func (p *pass) allocated(reason, saying string) *pass {
	p.t.Helper()
	c := meta.FindStatusCondition(p.pool.Status.Conditions, v1alpha1.ConditionAllocated)
	if c == nil || c.Reason != reason || !strings.Contains(c.Message, saying) {
		p.t.Fatalf("Allocated is %+v, want %s, %q", c, reason, saying)
	}
	return p
}

func sharedSubnet(e *pools) {
	e.Applied(nodes("10.0.0.10-10.0.0.50"))
	e.Created(build.Pool("vips").CIDR("10.0.0.0/24").Occupies("10.0.0.51-10.0.0.99").Network(24, "10.0.0.1").Obj())
	e.Reconciled("nodes").In(v1alpha1.PoolReady, "10.0.0.0/24").Ready()
	e.Reconciled("vips").In(v1alpha1.PoolReady, "10.0.0.0/24").Free("49").Wrote("create IPAllocation", "patch IPPool", "patch IPPool/status")
	e.holds("vips", "10.0.0.51/32 10.0.0.52/30 10.0.0.56/29 10.0.0.64/27 10.0.0.96/30")
	e.Created(build.Pool("other").CIDR("10.0.0.0/24").Occupies("10.0.0.99-10.0.0.120").Obj(), build.Pool("all").CIDR("10.0.0.0/24").Obj())
	e.Reconciled("other").In(v1alpha1.PoolPending, "").NotReady(v1alpha1.ReasonConflict).Saying("held by IPPool vips").After(recheck)
	e.Reconciled("all").NotReady(v1alpha1.ReasonConflict)
}

func childOfRanges(e *pools) {
	e.Applied(build.Pool("parent").CIDR("10.0.0.0/24").Reserved("10.0.0.200").Obj())
	e.Created(
		build.Pool("nodes").CIDR("10.0.0.0/24").Child("parent", 24).Occupies("10.0.0.10-10.0.0.50").With(withoutLength).Obj(),
		build.Pool("reserved").CIDR("10.0.0.0/24").Child("parent", 24).Occupies("10.0.0.190-10.0.0.210").With(withoutLength).Obj(),
		build.Pool("wide").CIDR("10.0.0.0/16").Child("parent", 16).Occupies("10.0.1.1").With(withoutLength).Obj(),
	)
	e.Reconciled("nodes").In(v1alpha1.PoolReady, "10.0.0.0/24").Free("41").Ready()
	e.Reconciled("reserved").NotReady(v1alpha1.ReasonConflict).Saying("not handed out by pool parent")
	e.Reconciled("wide").NotReady(v1alpha1.ReasonInvalid).Saying("spec.ranges: 10.0.1.1/32: lies outside the parent")
	e.Recorded(story.Block("a", "parent", "10.0.0.64/26"))
	e.Reconciled("parent").Ready()
}

func withoutLength(s *v1alpha1.IPPoolSpec) { s.PrefixLength = nil }

func grownRanges(e *pools) {
	e.Applied(nodes("10.0.0.0/30"))
	e.Reconciled("nodes").Free("4").Ready()
	e.edited("10.0.0.0/29")
	e.Passes(time.Second)
	e.Reconciled("nodes").In(v1alpha1.PoolReady, "10.0.0.0/24").Free("8").Ready().
		Wrote("create IPAllocation", "patch IPAllocation", "delete IPAllocation", "patch IPAllocation", "patch IPPool/status")
	e.holds("nodes", "10.0.0.0/29")
	e.HasHistory("Granted 10.0.0.0/29 Allocated", "Released 10.0.0.0/30 Edited")
	e.Reconciled("nodes").Ready().Wrote()
}

func shrunkRanges(e *pools) {
	e.Applied(nodes("10.0.0.0/29", "10.0.0.64/30"))
	e.Reconciled("nodes").Ready()
	e.Recorded(story.Block("kept", "nodes", "10.0.0.1/32"))
	e.Recorded(story.Block("removed", "nodes", "10.0.0.65/32"))
	e.edited("10.0.0.0/30")
	e.Passes(time.Second)
	e.Reconciled("nodes").Free("3").allocated(v1alpha1.ReasonRecorded, "until the blocks outside the ranges are released").
		Ready().Wrote("create IPAllocation", "patch IPPool/status").After(recheck)
	e.holds("nodes", "10.0.0.0/29 10.0.0.64/30", "10.0.0.0/30")
	e.Created(build.Pool("vips").CIDR("10.0.0.0/24").Occupies("10.0.0.4-10.0.0.7").Obj())
	e.Reconciled("vips").NotReady(v1alpha1.ReasonConflict).Saying("held by IPPool nodes")
	e.Collected(story.Claim("removed"))
	e.Reconciled("nodes").allocated(v1alpha1.ReasonRecorded, "the pool's ranges are recorded").Ready().After(0)
	e.holds("nodes", "10.0.0.0/30")
	e.Reconciled("vips").Free("4").Ready()
}

func contestedRanges(e *pools) {
	e.Applied(nodes("10.0.0.0/30"), build.Pool("vips").CIDR("10.0.0.0/24").Occupies("10.0.0.4-10.0.0.7").Obj())
	e.Reconciled("nodes").Ready()
	e.Reconciled("vips").Ready()
	e.edited("10.0.0.0-10.0.0.5")
	e.Passes(time.Second)
	e.Reconciled("nodes").In(v1alpha1.PoolReady, "10.0.0.0/24").Free("4").allocated(v1alpha1.ReasonConflict, "held by IPPool vips").Ready().After(recheck)
	e.holds("nodes", "10.0.0.0/30")
	e.Deleted(pool("vips"))
	e.Reconciled("vips")
	e.Collected(holder("vips"))
	e.Reconciled("nodes").Free("6").allocated(v1alpha1.ReasonRecorded, "").Ready()
	e.holds("nodes", "10.0.0.0/30 10.0.0.4/31")
}

// leftoverEdit finds the record of an edit that has lost, and that its maker did not give up.
func leftoverEdit(e *pools) {
	e.Applied(nodes("10.0.0.0/30"), build.Pool("vips").CIDR("10.0.0.0/24").Occupies("10.0.0.4-10.0.0.7").Obj())
	e.Reconciled("nodes").Ready()
	e.Reconciled("vips").Ready()
	e.edited("10.0.0.0/29")
	lost := e.own("nodes")
	lost.Name.Name, lost.UID, lost.Version, lost.Block = "lost", "", "", story.Block("a", "nodes", "10.0.0.0/29").Block
	e.Recorded(lost)
	e.Passes(time.Second)
	e.Reconciled("nodes").Free("4").allocated(v1alpha1.ReasonConflict, "held by IPPool vips").Ready().After(recheck)
	e.holds("nodes", "10.0.0.0/30")
}

func regrownRanges(e *pools) {
	e.Applied(nodes("10.0.0.0/29"))
	e.Reconciled("nodes").Ready()
	for _, ranges := range []string{"10.0.0.0/30", "10.0.0.0/29", "10.0.0.4/30", "10.0.0.0/30"} {
		e.edited(ranges)
		e.Passes(time.Second)
		e.Reconciled("nodes").Ready()
		e.holds("nodes", ranges)
	}
}

func unstampedRanges(e *pools) {
	e.Applied(nodes("10.0.0.0/29"))
	e.Recorded(story.Block("removed", "nodes", "10.0.0.4/32"))
	e.edited("10.0.0.0/30")
	e.Retried("nodes").Wrote("patch IPAllocation")
	e.Reconciled("nodes").Ready()
	e.holds("nodes", "10.0.0.0/29", "10.0.0.0/30")
}

func deletedEdited(e *pools) {
	e.Applied(nodes("10.0.0.0/29"))
	e.Reconciled("nodes").Ready()
	e.Recorded(story.Block("removed", "nodes", "10.0.0.4/32"))
	e.edited("10.0.0.0/30")
	e.Reconciled("nodes").Ready()
	e.Deleted(pool("nodes"))
	e.Reconciled("nodes").NotReady(v1alpha1.ReasonTerminating)
	e.holds("nodes", "10.0.0.0/29", "10.0.0.0/30")
	e.Collected(story.Claim("removed"))
	e.Reconciled("nodes")
	e.Gone(pool("nodes"))
	for _, record := range e.RecordsOf(holder("nodes")) {
		if record.State != ipam.StateReleasing {
			e.t.Errorf("%s is %s after the pool is gone, want Releasing", record.Name, record.State)
		}
	}
	e.Collected(holder("nodes"))
	e.holds("nodes")
}

func remadeEdited(e *pools) {
	e.Applied(nodes("10.0.0.0/29"))
	e.Reconciled("nodes").Ready()
	e.edited("10.0.0.0/30")
	e.Reconciled("nodes").Ready()
	e.Recorded(story.Block("a", "nodes", "10.0.0.1/32"))
	e.Forced(pool("nodes"))
	e.Created(nodes("10.0.0.0/30"))
	e.Retried("nodes").Wrote("patch IPAllocation")
	e.Reconciled("nodes").Free("3").Ready()
	e.holds("nodes", "10.0.0.0/30")
	if own := e.own("nodes"); own.HolderUID != string(e.stored("nodes").UID) {
		e.t.Errorf("the record is of the UID %s, want that of the new pool", own.HolderUID)
	}
}

func remadeOtherwise(e *pools) {
	e.Applied(nodes("10.0.0.0/29"))
	e.Reconciled("nodes").Ready()
	e.Recorded(story.Block("removed", "nodes", "10.0.0.4/32"))
	e.Forced(pool("nodes"))
	e.Created(nodes("10.0.0.0/30"))
	e.Retried("nodes").Wrote("patch IPAllocation")
	e.Reconciled("nodes").Free("4").Ready()
	e.holds("nodes", "10.0.0.0/29", "10.0.0.0/30")
	for _, record := range e.RecordsOf(holder("nodes")) {
		if want := record.Block.Bits() == 29; record.Adopted != want {
			e.t.Errorf("%s is adopted: %t, want %t", record.Block, record.Adopted, want)
		}
	}
	e.Collected(story.Claim("removed"))
	e.Reconciled("nodes").Ready()
	e.holds("nodes", "10.0.0.0/30")
}

// lostEdit lets the record of an edit disappear while the one from before is released.
func lostEdit(e *pools) {
	e.Applied(nodes("10.0.0.0/29"))
	e.Reconciled("nodes").Ready()
	e.edited("10.0.0.0/30")
	e.Meanwhile("patch IPAllocation", func() {
		for _, record := range e.RecordsOf(holder("nodes")) {
			if record.Block.Bits() == 30 {
				e.Forced(convert.Allocation(record))
			}
		}
	})
	e.Reconciled("nodes").Ready()
	e.holds("nodes", "10.0.0.0/29")
	e.Reconciled("nodes").Ready()
	e.holds("nodes", "10.0.0.0/30")
}

// numberedRanges returns a pool of ranges that overlaps no other one, with a block in each half of them.
func (e *pools) numberedRanges(n int) *v1alpha1.IPPool {
	name := fmt.Sprintf("r%d", n)
	obj := build.Pool(name).CIDR(fmt.Sprintf("10.%d.0.0/16", n)).Occupies(fmt.Sprintf("10.%d.0.0-10.%[1]d.0.9", n)).Obj()
	e.Applied(obj.DeepCopy())
	e.Reconciled(name).Ready()
	e.Recorded(story.Block(name+"-kept", name, fmt.Sprintf("10.%d.0.1/32", n)))
	story.Edited(e.World, pool(name), func(p *v1alpha1.IPPool) {
		p.Spec.Ranges = []string{fmt.Sprintf("10.%d.0.0-10.%[1]d.0.5", n), fmt.Sprintf("10.%d.0.64/28", n)}
	})
	return obj
}

func editedReplaced(e *pools) {
	e.Interrupted(func(n int) story.Interruption {
		obj := e.numberedRanges(n)
		return e.interruption(obj.Name, func() { e.Replaced(obj) })
	})
}

func editedFails(e *pools) {
	e.Failing(func(n int) story.Interruption {
		obj := e.numberedRanges(n)
		i := e.interruption(obj.Name, nil)
		i.Check = func() {
			e.Reconciled(obj.Name).Ready()
			e.holds(obj.Name, fmt.Sprintf("10.%d.0.0/30 10.%[1]d.0.4/31 10.%[1]d.0.64/28", n))
		}
		return i
	})
}

func featureOff(e *pools) {
	e.Applied(nodes("10.0.0.0/30"))
	e.Reconciled("nodes").Ready()
	e.Allocator.PoolRanges = false
	e.Created(build.Pool("vips").CIDR("10.0.0.0/24").Occupies("10.0.0.16/28").Obj())
	e.Reconciled("vips").NotReady(v1alpha1.ReasonInvalid).Saying("PoolRanges is off")
	e.Reconciled("nodes").Ready()
	e.edited("10.0.0.0/29")
	e.Passes(time.Second)
	e.Reconciled("nodes").Free("4").allocated(v1alpha1.ReasonInvalid, "PoolRanges is off").Ready()
	if name := convert.RecordOfPool(story.System, ipam.PoolNamed("nodes")); e.own("nodes").Name != name {
		e.t.Errorf("the pool has %s, want its first record", e.own("nodes").Name)
	}
}
