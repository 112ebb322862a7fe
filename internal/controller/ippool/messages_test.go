package ippool

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

// TestPoolConditionsStateRemedy covers pools in every state, and the reasons for which their
// CIDR is not recorded.
func TestPoolConditionsStateRemedy(t *testing.T) {
	cidr := netip.MustParsePrefix("10.0.0.0/24")
	withheld := ipam.Pool{CIDR: cidr, Withheld: space.NewRanges(cidr, []space.Range{space.RangeOf(cidr)})}
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
	}{
		{pool: ipam.Pool{CIDR: cidr}},
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
		now, retry := readyReasonOf(test.err)
		if (retry != nil) != (errors.Is(retry, denied)) || now == (readyReason{}) != (test.err == nil) {
			t.Fatalf("%v: got %+v, %v", test.err, now, retry)
		}
		obj := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: test.annotations}}
		(&Controller{}).conditions(&scope{obj: obj, pool: test.pool}, now, test.exhausted)
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
