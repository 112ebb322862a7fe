package ippool

import (
	"cmp"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
)

// countedPool fills a pool.
func countedPool(e *pools) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	e.Reconciled("p").Counts(0, 0, "/24").Ready().Saying("hands out blocks")
	for _, block := range []struct {
		holder, cidr string
		held         int64
		utilized     int32
		largest      string
	}{{"a", "10.0.0.0/25", 1, 50, "/25"}, {"b", "10.0.0.128/26", 2, 75, "/26"}, {"c", "10.0.0.192/26", 3, 100, ""}} {
		e.Recorded(story.Block(block.holder, "p", block.cidr))
		e.Passes(countEvery)
		e.Reconciled("p").Counts(block.held, block.utilized, block.largest)
	}
	e.Reconciled("p").Ready().Reason(v1alpha1.ReasonFull).Saying("the pool is full")
}

func withheldPool(e *pools) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Reserved("10.0.0.0/24").Obj())
	e.Reconciled("p").Counts(0, 0, "").Ready().Reason(v1alpha1.ReasonFull).Saying("all addresses of the pool are withheld")
}

// lostBlock records the block of a pool for another while its own record is lost.
func lostBlock(e *pools) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	e.Reconciled("p").Ready()
	e.Forced(convert.Allocation(e.own("p")))
	e.Applied(build.Pool("q").CIDR("10.0.0.0/16").Obj())
	e.Reconciled("p").In(v1alpha1.PoolPending, "").NotReady(v1alpha1.ReasonConflict)
}

// restoredChild creates a pool that waits for its parent, with the status of a former one.
func restoredChild(e *pools) {
	child := build.Pool("sub").Child("parent", 26).Obj()
	e.Created(child)
	child.Status = v1alpha1.PoolStatus{AllocatedCIDR: "10.0.0.0/26", Capacity: &v1alpha1.Capacity{Available: "64"}, Allocations: 1, UtilizationPercent: 2, LargestFreePrefix: "/27"}
	if err := e.K8s.Status().Update(e.t.Context(), child); err != nil {
		e.t.Fatal(err)
	}
	e.Seen()
	pass := e.Reconciled("sub").In(v1alpha1.PoolPending, "").Counts(0, 0, "").NotReady(v1alpha1.ReasonParentNotReady)
	if pass == nil || e.stored("sub").Status.Capacity != nil {
		e.t.Errorf("it still counts %+v", e.stored("sub").Status.Capacity)
	}
	e.Created(build.Pool("parent").CIDR("10.0.0.0/24").Obj())
	e.Reconciled("parent").Ready()
	e.Reconciled("sub").In(v1alpha1.PoolReady, "10.0.0.0/26")
	e.Seen() // the watch shows its CIDR: there is something to count
	e.Passes(countEvery)
	e.Reconciled("sub").Counts(0, 0, "/26")
	if family := e.stored("sub").Status.IPFamily; family != v1alpha1.IPv4 {
		e.t.Errorf("its status has the family %q, want IPv4", family)
	}
}

// Counts expects these counts in the status: the blocks, the used part of the pool, and the largest
// free block, as of the stored records.
func (p *pass) Counts(held int64, utilized int32, largest string) *pass {
	p.t.Helper()
	status := p.pool.Status
	if status.Allocations != held || status.UtilizationPercent != utilized || status.LargestFreePrefix != largest {
		p.t.Fatalf("the status counts %d blocks, %d %%, %q free; want %d, %d %%, %q", status.Allocations, status.UtilizationPercent, status.LargestFreePrefix, held, utilized, largest)
	}
	if isExhausted := status.Capacity != nil && largest == ""; meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionExhausted) != isExhausted ||
		meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionExhausted) == isExhausted {
		p.t.Fatalf("the conditions are %+v, want Exhausted: %t", status.Conditions, isExhausted)
	}
	if observed := cmp.Or(status.ObservedGeneration, -1); observed != p.pool.Generation {
		p.t.Fatalf("the status is of generation %d, want %d", observed, p.pool.Generation)
	}
	return p
}

func TestFirstReadyTimeIsSetOnce(t *testing.T) {
	at := func(seconds int64) metav1.Time { return metav1.NewTime(time.Unix(seconds, 0)) }
	var status v1alpha1.PoolStatus
	for _, step := range []struct {
		what  string
		ready metav1.ConditionStatus
		since int64
		want  int64 // 0: never
	}{
		{"it is made, paused", metav1.ConditionFalse, 1, 0},
		{"it is resumed", metav1.ConditionTrue, 2, 2},
		{"it is paused", metav1.ConditionFalse, 3, 2},
		{"it is resumed again", metav1.ConditionTrue, 4, 2},
	} {
		// Changed in place, as by the controller.
		status.Conditions = append(status.Conditions[:0], metav1.Condition{Type: v1alpha1.ConditionReady, Status: step.ready, LastTransitionTime: at(step.since)})
		status.FirstReadyTime = firstReady(&status)
		switch got := status.FirstReadyTime; {
		case got == nil && step.want != 0, got != nil && got.Unix() != step.want:
			t.Errorf("%s: it was first ready at %v, want %d", step.what, got, step.want)
		}
	}
}
