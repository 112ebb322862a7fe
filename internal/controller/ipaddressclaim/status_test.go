package ipaddressclaim

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

// TestRetriedErrors covers errors that the condition does not report, except a refusal by the
// API server of an object that the claim needs.
func TestRetriedErrors(t *testing.T) {
	records := schema.GroupResource{Group: "ipam.cadastre.dev", Resource: "ipallocations"}
	ending := apierrors.NewForbidden(records, "a", errors.New("the namespace is being terminated"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause, Field: "metadata.namespace"}}
	limit := &ipam.LimitError{Subject: "pool hosts", Project: "team", Unit: "address", Most: space.CountOf64(2), Held: space.CountOf64(2)}
	refused := `ipallocations.ipam.cadastre.dev "a" is forbidden: exceeded quota: remove the cause; it is tried again by itself`
	for name, test := range map[string]struct {
		err             error
		again           bool
		reason, message string
	}{
		"the namespace is being deleted": {err: fmt.Errorf("creating: %w", ending)},
		"a quota refuses it":             {apierrors.NewForbidden(records, "a", errors.New("exceeded quota")), true, "RecordRefused", refused},
		"there is a newer version":       {err: apierrors.NewConflict(records, "a", nil), again: true},
		"the API server is not there":    {err: errors.New("connection refused"), again: true},
		"a pool is not in the cache yet": {err: fmt.Errorf("looking: %w", apierrors.NewNotFound(records, "a")), again: true},
		"it asks too often":              {err: apierrors.NewTooManyRequests("slow down", 1), again: true},
		"its project holds too much":     {limit, true, "LimitReached", limit.Stable()},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := servedClaim()
			reason, message, retry := (&Controller{}).reason(s, test.err)
			if reason != test.reason || message != test.message || (retry != nil) != test.again {
				t.Errorf("got %q, %q, %v; want %q, %q, tried again: %t", reason, message, retry, test.reason, test.message, test.again)
			}
		})
	}
}

// TestServedClaimInConflictIsNotReady makes another record on the address of a claim: the claim keeps
// the address, and is not ready.
func TestServedClaimInConflictIsNotReady(t *testing.T) {
	s, record := servedClaim()
	rival := record
	rival.Name.Name, rival.UID, rival.Holder.Name, rival.HolderUID = "b-12345678", "rival", "b", "other"
	s.record = record
	c := attachReplica(allocatorWith(t, record, rival), &Controller{})
	if err := c.applyResult(s, nil); err != nil {
		t.Fatal(err)
	}
	ready := conditions.Get(s.claim, ipamv1.IPAddressClaimReadyCondition)
	if ready.Status != metav1.ConditionFalse || ready.Reason != ipamv1.IPAddressClaimReadyAllocationFailedReason ||
		ready.Message != "conflict: 10.0.0.1/32 is in use in pool hosts: have one of the two released" {
		t.Errorf("got %+v, want that it is not ready, with the reason", ready)
	}
	messages.Golden(t, []messages.Row{{Object: "IPAddressClaim", On: "condition Ready", Answer: "False, " + ready.Reason, Value: "10.0.0.1/32", Message: ready.Message}})
	if s.claim.Status.AddressRef.Name != "a" {
		t.Errorf("got address %q, want its own", s.claim.Status.AddressRef.Name)
	}
}

// TestClaimWithoutAddressStatesRemedy covers the errors with which a pass can end.
func TestClaimWithoutAddressStatesRemedy(t *testing.T) {
	served, record := servedClaim()
	served.record = record
	waiting, _ := servedClaim()
	waiting.address = nil
	c := attachReplica(allocatorWith(t, record), &Controller{})
	c.Catalog.SetProject("team", "team")
	block, pool := netip.MustParsePrefix("10.0.0.1/32"), ipam.PoolNamed("hosts")
	taken := &ipam.TakenError{Block: block, Pool: pool, Overlap: block, Holder: convert.HolderOfAddressClaim(ipam.Name{Namespace: "team", Name: "other"})}
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "ipaddresses"}, "a", errors.New("exceeded quota"))
	mismatched, _ := servedClaim()
	mismatched.address.Spec.PoolRef.Name = "others"
	unreadable, _ := servedClaim()
	unreadable.address.Spec.Address = "10.0.0"
	ofClass, _ := servedClaim()
	ofClass.address.Spec.PoolRef.Kind = "IPClass"
	_, noPool := c.poolOf(ofClass, block.Addr())
	var rows []messages.Row
	for value, test := range map[string]struct {
		s   *scope
		err error
	}{
		"/32 in pool hosts":         {waiting, &ipam.ExhaustedError{Pools: []ipam.PoolKey{pool}, Bits: 32, Largest: ipam.NoLength}},
		"example.com/ipam":          {waiting, &ipam.ExhaustedError{Pools: []ipam.PoolKey{pool}, Bits: 32, Largest: ipam.NoLength, Provisioner: "example.com/ipam"}},
		"never handed out":          {waiting, &ipam.TakenError{Block: block, Pool: pool}},
		"team/other: ask":           {waiting, taken},
		"not recorded yet":          {waiting, c.unrecordedError(waiting, taken, taken)},
		"conflict: ":                {served, taken},
		"2 blocks":                  {waiting, &ipam.LimitError{Subject: "pool hosts", Project: "team", Unit: "block", Most: space.CountOf64(2), Held: space.CountOf64(2)}},
		"is held for this claim":    {served, nil},
		"claim, but":                {served, quota},
		"exceeded quota":            {waiting, quota},
		"the IPPool others":         {mismatched, c.recordExisting(t.Context(), mismatched)},
		"IPAddress spec.address: 1": {unreadable, c.recordExisting(t.Context(), unreadable)},
		"10.0.0.1":                  {ofClass, noPool},
		"hosts is gone":             {served, c.createAddress(t.Context(), served)},
	} {
		reason, message, _ := c.reason(test.s, test.err)
		status := "False, "
		if test.err == nil {
			status = "True, "
		}
		rows = append(rows, messages.Row{Object: "IPAddressClaim", On: "condition Ready", Answer: status + reason, Value: value, Message: message})
	}
	c.Catalog.SetPool(ipam.Pool{Key: pool, Paused: true})
	halt := c.poolHaltOf(waiting)
	if halt == nil {
		t.Fatal("a claim of a paused pool is not halted")
	}
	rows = append(rows, messages.Row{Object: "IPAddressClaim", On: "condition Ready", Answer: "False, " + halt.reason, Value: "hosts", Message: halt.message})
	messages.Golden(t, rows)
}

// TestConditionStatesReasonOfEachPool covers a condition, as the claim has no other
// status for that.
func TestConditionStatesReasonOfEachPool(t *testing.T) {
	_, record := servedClaim()
	waiting, _ := servedClaim()
	waiting.address = nil
	c := attachReplica(allocatorWith(t, record), &Controller{})
	full := &ipam.ExhaustedError{Pools: []ipam.PoolKey{ipam.PoolNamed("a")}, Bits: 32, Largest: ipam.NoLength}
	pools := []ipam.PoolResult{{Pool: ipam.PoolNamed("a"), Err: full}, {Pool: ipam.PoolNamed("b"), Err: &ipam.MissingError{Verdict: ipam.Paused}}}
	for want, results := range map[string][]ipam.PoolResult{
		"no free /32 in pool a: the claim is served as soon as one is released (pool a: NoFreeBlock, pool b: Paused)": pools,
		"no free /32 in pool a: the claim is served as soon as one is released":                                       pools[:1],
	} {
		reason, message, retry := c.reason(waiting, ipam.WithPools(full, results))
		if reason != "PoolExhausted" || message != want || retry != nil {
			t.Errorf("got %s: %s, and %v", reason, message, retry)
		}
	}
	own := &ipam.TakenError{Block: netip.MustParsePrefix("10.0.0.1/32"), Holder: waiting.holder()} // about to be shown, or to be released
	if reason, message, retry := c.reason(waiting, ipam.WithPools(own, pools)); reason != "" || message != "" || retry == nil {
		t.Errorf("about its record it reports %s: %s, and %v", reason, message, retry)
	}
}
