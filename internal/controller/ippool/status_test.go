package ippool

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
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

// replacedGateways records addresses with more former gateways than a status lists.
func replacedGateways(e *pools) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	var want []string
	for n := range 17 {
		record := story.Block(fmt.Sprint("c-", n), "p", fmt.Sprintf("10.0.0.%d/32", 100+n))
		record.Gateway = netip.MustParseAddr(fmt.Sprint("10.0.0.", 10+n))
		e.Recorded(record)
		want = append(want, record.Gateway.String())
	}
	e.Reconciled("p").Ready()
	if got := e.stored("p").Status.FormerGateways; !slices.Equal(got, want[:16]) {
		e.t.Errorf("the former gateways are %v, want %v", got, want[:16])
	}
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

// TestPoolConditionsStateRemedy covers pools in every state, and the reasons for which their
// CIDR is not recorded.
func TestPoolConditionsStateRemedy(t *testing.T) {
	cidr := netip.MustParsePrefix("10.0.0.0/24")
	withheld := ipam.Pool{CIDR: cidr, Withheld: space.NewRanges(cidr, []space.Range{space.RangeOf(cidr)})}
	ranges := ipam.Pool{CIDR: cidr, Occupied: withheld.Withheld}
	home := ipam.DomainNamed("default", ipam.IPv4)
	paused := map[string]string{v1alpha1.AnnotationPaused: ""}
	denied := fmt.Errorf("writing 10.0.0.0/24 into the pool: %w",
		apierrors.NewForbidden(schema.GroupResource{Group: "ipam.cadastre.dev", Resource: "ippools"}, "p", errors.New("ValidatingAdmissionPolicy 'frozen' with binding 'frozen' denied request: not now")))
	both := map[string]string{v1alpha1.AnnotationPaused: "", v1alpha1.AnnotationClusterAPIPaused: ""}
	var rows []messages.Row
	for _, test := range []struct {
		annotations map[string]string
		pool        ipam.Pool
		err         error
		exhausted   bool
		open        bool
		former      int
		leftOut     []ipam.Record
		runs        bool
	}{
		{pool: ipam.Pool{CIDR: cidr}},
		{pool: ranges},
		{pool: ranges, former: 1},
		{pool: ranges, leftOut: []ipam.Record{{Holder: convert.HolderOfPool(ipam.PoolNamed("other"))}}},
		{pool: ipam.Pool{Key: ipam.PoolOfKind(ipam.PoolKindInClusterIPPool, "team", "p"), CIDR: cidr, Occupied: withheld.Withheld}, runs: true},
		{pool: ranges, err: &ipam.TakenError{Block: cidr, Pool: home, Overlap: cidr, Holder: convert.HolderOfPool(ipam.PoolNamed("other"))}},
		{pool: ranges, open: true, err: &ipam.TakenError{Block: cidr, Pool: home, Overlap: cidr, Holder: convert.HolderOfPool(ipam.PoolNamed("other"))}},
		{pool: ipam.Pool{CIDR: cidr}, exhausted: true},
		{pool: withheld, exhausted: true},
		{pool: ipam.Pool{CIDR: cidr, Terminating: true}},
		{pool: ipam.Pool{CIDR: cidr, Paused: true}, annotations: paused},
		{pool: ipam.Pool{CIDR: cidr, Paused: true}, annotations: both},
		{err: &ipam.ExhaustedError{Pools: []ipam.PoolKey{ipam.PoolNamed("above")}, Bits: 24, Largest: 26}},
		{err: &ipam.TakenError{Block: cidr, Pool: home, Overlap: cidr, Holder: convert.HolderOfPool(ipam.PoolNamed("other"))}},
		{err: &ipam.TakenError{Block: cidr, Pool: ipam.PoolNamed("above")}},
		{err: parkIfRefused(denied)},
		{pool: ipam.Pool{CIDR: cidr, Terminating: true}, err: parkIfRefused(denied)},
	} {
		s := &scope{pool: test.pool, open: test.open, former: test.former, leftOut: test.leftOut}
		now, retry := readyReasonOf(s, test.err)
		if (retry != nil) != (errors.Is(retry, denied)) || now == (readyReason{}) != (test.err == nil) {
			t.Fatalf("%v: got %+v, %v", test.err, now, retry)
		}
		obj := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: test.annotations}}
		s.obj = obj
		(&Controller{IsProviderRunning: func() bool { return test.runs }}).conditions(s, now, test.exhausted)
		for _, c := range obj.Status.Conditions {
			if c.Message != "" {
				rows = append(rows, messages.Row{Object: "IPPool", On: "condition " + c.Type, Answer: string(c.Status) + ", " + c.Reason, Message: c.Message})
			}
		}
	}
	messages.Golden(t, rows)
}

// TestPoolEvents covers every event of a pool. The events of a cluster-scoped pool name no
// holder: they are in the namespace default.
func TestPoolEvents(t *testing.T) {
	status := func(reason string, is metav1.ConditionStatus, held int64, outOfRange string) v1alpha1.PoolStatus {
		return v1alpha1.PoolStatus{
			Allocations: held, Capacity: &v1alpha1.Capacity{OutOfRange: outOfRange},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: is, Reason: reason, Message: "10.0.0.0/8 of pool above, held by IPClaim secret/a: have it released"}},
		}
	}
	ready := status(v1alpha1.ReasonReady, metav1.ConditionTrue, 1, "0")
	var rows []messages.Row
	for name, test := range map[string]struct {
		before, after v1alpha1.PoolStatus
		local         bool
		want          []string
	}{
		"it is new":                    {v1alpha1.PoolStatus{}, ready, false, []string{"Normal Ready"}},
		"nothing":                      {ready, ready, false, nil},
		"a count":                      {ready, status(v1alpha1.ReasonReady, metav1.ConditionTrue, 2, "0"), false, nil},
		"it is full":                   {ready, status(v1alpha1.ReasonFull, metav1.ConditionTrue, 1, "0"), false, []string{"Warning Full"}},
		"it is deleted while in use":   {ready, status(v1alpha1.ReasonTerminating, metav1.ConditionFalse, 3, "0"), false, []string{"Warning DeletionBlocked"}},
		"the same with one block":      {ready, status(v1alpha1.ReasonTerminating, metav1.ConditionFalse, 1, "0"), false, []string{"Warning DeletionBlocked"}},
		"it is deleted":                {ready, status(v1alpha1.ReasonTerminating, metav1.ConditionFalse, 0, "0"), false, nil},
		"it is drained":                {ready, status(v1alpha1.ReasonReady, metav1.ConditionTrue, 1, "16"), false, []string{"Normal Draining"}},
		"one address of it is":         {ready, status(v1alpha1.ReasonReady, metav1.ConditionTrue, 1, "1"), false, []string{"Normal Draining"}},
		"more of it is":                {status(v1alpha1.ReasonReady, metav1.ConditionTrue, 1, "1"), status(v1alpha1.ReasonReady, metav1.ConditionTrue, 1, "16"), false, nil},
		"it has been drained":          {status(v1alpha1.ReasonReady, metav1.ConditionTrue, 1, "16"), ready, false, []string{"Normal Drained"}},
		"it is in conflict":            {ready, status(v1alpha1.ReasonConflict, metav1.ConditionFalse, 1, "0"), false, []string{"Warning Conflict"}},
		"a namespace's own is so, too": {ready, status(v1alpha1.ReasonConflict, metav1.ConditionFalse, 1, "0"), true, []string{"Warning Conflict"}},
	} {
		obj := v1alpha1.Pool(&v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}})
		if test.local {
			obj = &v1alpha1.LocalIPPool{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p"}}
		}
		var got []string
		for _, h := range eventsOf(obj, test.before, test.after) {
			got = append(got, h.kind+" "+h.reason)
			if h.reason == v1alpha1.ReasonConflict && strings.Contains(h.note, "secret") != test.local {
				t.Errorf("%s: the event has the note %q", name, h.note)
			}
			if h.note != test.after.Conditions[0].Message {
				rows = append(rows, messages.Row{Object: "IPPool", On: "event", Answer: h.kind + ", " + h.reason, Value: "pool p", Message: h.note})
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got the events %q, want %q", name, got, test.want)
		}
	}
	messages.Golden(t, rows)
}

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

func TestRemedyForTakenBlockDependsOnWhatPoolHolds(t *testing.T) {
	block := netip.MustParsePrefix("10.0.0.0/24")
	ranges := &scope{pool: ipam.Pool{Occupied: space.NewRanges(block, []space.Range{space.RangeOf(block)})}}
	if got := ifTaken(ranges); !strings.HasPrefix(got, "leave it out of the ranges") || !strings.HasSuffix(got, "nothing is handed out before") {
		t.Errorf("for ranges it is %q", got)
	}
	if got := ifTaken(&scope{}); !strings.HasPrefix(got, "have one of the two released") {
		t.Errorf("for a CIDR it is %q", got)
	}
}
