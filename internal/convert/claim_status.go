package convert

import (
	"errors"
	"fmt"
	"math"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// ClaimOutcome is what came of an attempt to serve an IPClaim, for its status. Admission
// and the controller write the same status for the same outcome.
type ClaimOutcome struct {
	// Phase is empty where the attempt says nothing about the claim.
	Phase           v1alpha1.ClaimPhase
	Reason, Message string
	// Record holds the block of a claim that is Bound.
	Record ipam.Record
	// Network is that of the record's pool; nil where it has none.
	Network *ipam.Network
	// Conflict says what else is recorded on the block of a claim that is Bound; empty
	// where nothing is.
	Conflict string
	// Candidates are the pools that the claim may use, and Omitted how many more there are.
	Candidates []v1alpha1.CandidatePool
	Omitted    int
}

// ClaimBound is the outcome for a claim whose block is held by a record of the pool.
func ClaimBound(record ipam.Record, pool ipam.Pool) ClaimOutcome {
	return ClaimOutcome{
		Phase: v1alpha1.ClaimBound, Reason: v1alpha1.ReasonBound, Message: fmt.Sprintf("%s of %s is held for this claim", record.Block, record.Pool),
		Record: record, Network: pool.Network,
	}
}

// ClaimWaits is the outcome for a claim that is not served because of the error. It is the
// zero ClaimOutcome where the error says nothing about the claim.
func ClaimWaits(err error) ClaimOutcome {
	unserved, ok := errors.AsType[ipam.Unserved](err)
	if !ok {
		return ClaimOutcome{}
	}
	outcome := ClaimOutcome{Phase: v1alpha1.ClaimPending}
	outcome.Reason, outcome.Message = unserved.Condition(claimWording())
	outcome.Candidates, outcome.Omitted = Candidates(ipam.PoolsOf(err))
	if outcome.Reason == v1alpha1.ReasonPoolExhausted {
		outcome.Phase = v1alpha1.ClaimExhausted
	}
	return outcome
}

// claimWording is how an IPClaim says why it is not served.
func claimWording() ipam.Wording {
	return ipam.Wording{
		Policy: v1alpha1.ReasonPolicyViolation, Exhausted: v1alpha1.ReasonPoolExhausted, Taken: v1alpha1.ReasonConflict, Limit: v1alpha1.ReasonLimitReached,
		IfExhausted: "the claim is bound as soon as one is released",
		IfTaken:     "delete this claim and make a new one, or have the other released",
	}
}

// Status is the status of the claim after the outcome: that before it, where the outcome
// says nothing. Conditions keep the time of their last transition, and a claim that stays
// Bound keeps the network that it got when the block was handed out.
func (o ClaimOutcome) Status(before v1alpha1.IPClaimStatus) v1alpha1.IPClaimStatus {
	if o.Phase == "" {
		return before
	}
	status := v1alpha1.IPClaimStatus{
		Phase: o.Phase, Candidates: o.Candidates,
		CandidatesOmitted: int32(min(o.Omitted, math.MaxInt32)), //nolint:gosec // bounded, and not negative
	}
	if o.Phase == v1alpha1.ClaimBound {
		status.AllocatedCIDR, status.Address = o.Record.Block.String(), Address(o.Record.Block)
		status.PoolRef = PoolReference(o.Record.Pool)
		if name := o.Record.Name.Name; name != "" { // a dry run records nothing
			status.BoundAllocationRef = &v1alpha1.AllocationReference{Name: name}
		}
		if status.Network = before.Network; before.AllocatedCIDR != status.AllocatedCIDR {
			status.Network = ClaimNetwork(o.Network, o.Record)
		}
	}
	for _, condition := range before.Conditions {
		status.Conditions = append(status.Conditions, *condition.DeepCopy())
	}
	for _, condition := range o.conditions() {
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return status
}

// conditions are those of a claim, without times.
func (o ClaimOutcome) conditions() []metav1.Condition {
	condition := func(kind string, is bool) metav1.Condition {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: o.Reason, Message: o.Message}
		if is {
			c.Status = metav1.ConditionTrue
		}
		return c
	}
	ready := condition(v1alpha1.ConditionReady, o.Phase == v1alpha1.ClaimBound)
	if o.Conflict != "" {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1alpha1.ReasonConflict, o.Conflict
	}
	return []metav1.Condition{
		ready,
		condition(v1alpha1.ConditionPending, o.Phase == v1alpha1.ClaimPending),
		condition(v1alpha1.ConditionBound, o.Phase == v1alpha1.ClaimBound),
		condition(v1alpha1.ConditionExhausted, o.Phase == v1alpha1.ClaimExhausted),
	}
}

// gatewayOfRecord returns the gateway that the record states, so that both say the same. A
// record from before records did, or of a dry run, states none: it is that of the network.
func gatewayOfRecord(network *ipam.Network, record ipam.Record) netip.Addr {
	if record.Gateway.IsValid() {
		return record.Gateway
	}
	return network.Gateway
}

// ClaimNetwork is what a host has to know to use the block of a record, where that is an
// address of a network.
func ClaimNetwork(network *ipam.Network, record ipam.Record) *v1alpha1.ClaimNetwork {
	if network == nil || !record.Block.IsSingleIP() {
		return nil
	}
	settings := &v1alpha1.ClaimNetwork{
		PrefixLength: int32(network.Length), //nolint:gosec // 0 to 128
		HostSettings: v1alpha1.HostSettings{
			SearchDomains: network.SearchDomains,
			MTU:           int32(network.MTU),  //nolint:gosec // as read from an int32
			VLAN:          int32(network.VLAN), //nolint:gosec // as read from an int32
		},
	}
	if gateway := gatewayOfRecord(network, record); gateway.IsValid() {
		settings.Gateway = gateway.String()
	}
	for _, server := range network.DNSServers {
		settings.DNSServers = append(settings.DNSServers, server.String())
	}
	return settings
}
