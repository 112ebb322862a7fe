package convert

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// conditionsOf returns the conditions of a claim in a phase.
func conditionsOf(reason, message string, phase v1alpha1.ClaimPhase) []metav1.Condition {
	ready := metav1.ConditionFalse
	if phase == v1alpha1.ClaimBound {
		ready = metav1.ConditionTrue
	}
	return []metav1.Condition{
		{Type: "Ready", Status: ready, Reason: reason, Message: message},
		{Type: string(phase), Status: metav1.ConditionTrue, Reason: reason, Message: message},
	}
}

var ignoreTimes = cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")

func TestWaitingClaimStatesReason(t *testing.T) {
	pool, block := ipam.PoolNamed("p"), netip.MustParsePrefix("10.0.0.0/28")
	exhausted := &ipam.ExhaustedError{Pools: []ipam.PoolKey{pool}, Bits: 28, Largest: 29}
	holder := HolderOfClaim(ipam.Name{Namespace: "team", Name: "other"})
	for name, test := range map[string]struct {
		err             error
		phase           v1alpha1.ClaimPhase
		reason, message string
	}{
		"something is missing": {&ipam.MissingError{Reason: "ClassNotFound", Message: "there is no class"}, v1alpha1.ClaimPending, "ClassNotFound", "there is no class"},
		"it is not allowed":    {&ipam.PolicyError{Field: "spec.prefixLength", Value: 8, Remedy: "write 16"}, v1alpha1.ClaimPending, "PolicyViolation", "spec.prefixLength: 8: write 16"},
		"nothing is free":      {exhausted, v1alpha1.ClaimExhausted, "PoolExhausted", "no free /28 in pool p: the claim is bound as soon as one is released"},
		"another has it": {
			&ipam.TakenError{Block: block, Pool: pool, Overlap: block, Holder: holder}, v1alpha1.ClaimPending, "Conflict",
			(&ipam.TakenError{Block: block, Pool: pool, Overlap: block, Holder: holder}).Error() + ": delete this claim and make a new one, or have the other released",
		},
		"it is withheld": {
			&ipam.TakenError{Block: block, Pool: pool}, v1alpha1.ClaimPending, "Conflict",
			(&ipam.TakenError{Block: block, Pool: pool}).Error() + ": ask for another block",
		},
		"it lost its turn":           {&ipam.ParkedError{Reason: "LimitReached", Message: "exceeded"}, v1alpha1.ClaimPending, "LimitReached", "exceeded"},
		"it lost its turn, in a way": {errors.Join(&ipam.ParkedError{Reason: "RecordRefused", Message: "quota"}, exhausted), v1alpha1.ClaimPending, "RecordRefused", "quota"},
	} {
		t.Run(name, func(t *testing.T) {
			bound := v1alpha1.IPClaimStatus{Phase: v1alpha1.ClaimBound, AllocatedCIDR: "10.0.0.0/32", Address: "10.0.0.0", PoolRef: PoolReference(pool), Network: &v1alpha1.ClaimNetwork{PrefixLength: 24}}
			for _, before := range []v1alpha1.IPClaimStatus{{}, bound} { // no part of a former block stays
				got := ClaimWaits(fmt.Errorf("binding: %w", test.err)).Status(before)
				want := v1alpha1.IPClaimStatus{Phase: test.phase, Conditions: conditionsOf(test.reason, test.message, test.phase)}
				if diff := cmp.Diff(want, got, ignoreTimes); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestUnrelatedErrorLeavesClaimStatus(t *testing.T) {
	before := v1alpha1.IPClaimStatus{Phase: v1alpha1.ClaimExhausted, Conditions: conditionsOf("PoolExhausted", "x", v1alpha1.ClaimExhausted)}
	if diff := cmp.Diff(before, ClaimWaits(ipam.ErrNotSynced).Status(before)); diff != "" {
		t.Error(diff)
	}
}

func TestBoundClaimStatesBlock(t *testing.T) {
	network := &ipam.Network{
		Length: 24, Gateway: netip.MustParseAddr("10.0.0.1"), DNSServers: []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("2001:db8::53")},
		SearchDomains: []string{"example.com"}, MTU: 9000, VLAN: 42,
	}
	wantNetwork := &v1alpha1.ClaimNetwork{PrefixLength: 24, Gateway: "10.0.0.1", HostSettings: v1alpha1.HostSettings{
		DNSServers: []string{"10.0.0.2", "2001:db8::53"}, SearchDomains: []string{"example.com"}, MTU: 9000, VLAN: 42,
	}}
	for name, test := range map[string]struct {
		block, record string
		network       *ipam.Network
		before        v1alpha1.IPClaimStatus
		address       string
		want          *v1alpha1.ClaimNetwork
		gateway       string // that the record states
	}{
		"a block":                                  {block: "10.0.0.16/28", record: "c-1", network: network},
		"an address without a network":             {block: "10.0.0.16/32", record: "c-1", address: "10.0.0.16"},
		"an address of a network":                  {block: "10.0.0.16/32", record: "c-1", network: network, address: "10.0.0.16", want: wantNetwork},
		"an address of a plain network":            {block: "10.0.0.16/32", record: "c-1", network: &ipam.Network{Length: 24}, address: "10.0.0.16", want: &v1alpha1.ClaimNetwork{PrefixLength: 24}},
		"an address with another gateway":          {block: "10.0.0.16/32", record: "c-1", network: &ipam.Network{Length: 24, Gateway: netip.MustParseAddr("10.0.0.2")}, gateway: "10.0.0.1", address: "10.0.0.16", want: &v1alpha1.ClaimNetwork{PrefixLength: 24, Gateway: "10.0.0.1"}},
		"an address in a dry run":                  {block: "10.0.0.16/32", network: network, address: "10.0.0.16", want: wantNetwork},
		"an address that it had, with its network": {block: "10.0.0.16/32", record: "c-1", network: network, before: v1alpha1.IPClaimStatus{AllocatedCIDR: "10.0.0.16/32", Network: &v1alpha1.ClaimNetwork{PrefixLength: 16}}, address: "10.0.0.16", want: &v1alpha1.ClaimNetwork{PrefixLength: 16}},
		"an address after it waited for one":       {block: "10.0.0.16/32", record: "c-1", network: network, before: v1alpha1.IPClaimStatus{Phase: v1alpha1.ClaimExhausted, Conditions: conditionsOf("PoolExhausted", "x", v1alpha1.ClaimExhausted)}, address: "10.0.0.16", want: wantNetwork},
	} {
		t.Run(name, func(t *testing.T) {
			record := ipam.Record{Name: ipam.Name{Namespace: "team", Name: test.record}, Block: netip.MustParsePrefix(test.block), Pool: ipam.LocalPoolNamed("team", "p"), Gateway: GatewayGiven(test.gateway)}
			want := v1alpha1.IPClaimStatus{
				Phase: v1alpha1.ClaimBound, AllocatedCIDR: test.block, Address: test.address, Network: test.want,
				PoolRef:    &v1alpha1.PoolReference{Kind: "LocalIPPool", Name: "p"},
				Conditions: conditionsOf("Bound", fmt.Sprintf("%s of %s is held for this claim", test.block, record.Pool), v1alpha1.ClaimBound),
			}
			if test.record != "" {
				want.BoundAllocationRef = &v1alpha1.AllocationReference{Name: test.record}
			}
			if diff := cmp.Diff(want, ClaimBound(record, ipam.Pool{Network: test.network}).Status(test.before), ignoreTimes); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestConflictedClaimIsNotReady covers a claim that is Bound, and expects that conditions that
// do not change keep their time.
func TestConflictedClaimIsNotReady(t *testing.T) {
	long := metav1.NewTime(time.Unix(1_700_000_000, 0))
	outcome := ClaimBound(ipam.Record{Name: ipam.Name{Name: "c-1"}, Block: netip.MustParsePrefix("10.0.0.0/28"), Pool: ipam.PoolNamed("p")}, ipam.Pool{})
	before := outcome.Status(v1alpha1.IPClaimStatus{})
	for i := range before.Conditions {
		before.Conditions[i].LastTransitionTime = long
	}
	whole := before.DeepCopy()
	outcome.Conflict = "another has it too"
	after := outcome.Status(before)
	if diff := cmp.Diff(*whole, before); diff != "" {
		t.Errorf("the status before was changed: %s", diff)
	}
	want := *whole.DeepCopy()
	want.Conditions[0].Status, want.Conditions[0].Reason, want.Conditions[0].Message = metav1.ConditionFalse, "Conflict", "another has it too"
	want.Conditions[0].LastTransitionTime = after.Conditions[0].LastTransitionTime
	if diff := cmp.Diff(want, after); diff != "" || after.Conditions[0].LastTransitionTime.Equal(&long) {
		t.Errorf("Ready changed at %s: %s", after.Conditions[0].LastTransitionTime, diff)
	}
}

// TestStoredClaimKeepsConditions covers a claim of an earlier version, which has all phases as conditions, and
// one of another controller.
func TestStoredClaimKeepsConditions(t *testing.T) {
	before := v1alpha1.IPClaimStatus{Phase: v1alpha1.ClaimExhausted, Conditions: conditionsOf("PoolExhausted", "x", v1alpha1.ClaimExhausted)}
	other := metav1.Condition{Type: "Example", Status: metav1.ConditionTrue, Reason: "Example"}
	stored := append(slices.Clone(before.Conditions), metav1.Condition{Type: "Bound", Status: metav1.ConditionFalse, Reason: "PoolExhausted", Message: "x"}, other)
	before.Conditions = stored
	waits := ClaimOutcome{Phase: v1alpha1.ClaimExhausted, Reason: "PoolExhausted", Message: "x"}
	if diff := cmp.Diff(before, waits.Status(before)); diff != "" {
		t.Errorf("a claim that waits on is written: %s", diff)
	}
	for name, test := range map[string]struct {
		outcome ClaimOutcome
		want    []metav1.Condition
	}{
		"is bound":                 {ClaimBound(ipam.Record{Block: netip.MustParsePrefix("10.0.0.0/28"), Pool: ipam.PoolNamed("p")}, ipam.Pool{}), conditionsOf("Bound", "10.0.0.0/28 of pool p is held for this claim", v1alpha1.ClaimBound)},
		"waits for another reason": {ClaimOutcome{Phase: v1alpha1.ClaimExhausted, Reason: "PoolExhausted", Message: "y"}, conditionsOf("PoolExhausted", "y", v1alpha1.ClaimExhausted)},
	} {
		got := test.outcome.Status(before).Conditions
		if diff := cmp.Diff(append(test.want, other), got, ignoreTimes, cmpopts.SortSlices(func(a, b metav1.Condition) bool { return a.Type < b.Type })); diff != "" {
			t.Errorf("a claim that %s: %s", name, diff)
		}
	}
}
