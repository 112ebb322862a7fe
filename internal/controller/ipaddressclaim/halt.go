package ipaddressclaim

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// halt is why nothing may be done for a claim at the moment.
type halt struct{ reason, message string }

// halted is why nothing may be done for the claim at the moment: its Cluster is missing
// or paused, or the claim or its pool is (contract, "Normal IPAddressClaim" 2, "Deleted
// IPAddressClaim" 1); nil where that is not so. Nobody waits for the Cluster of a claim
// that is being deleted: it is often the first to go.
func (c *Controller) halted(s *scope) *halt {
	name := clusterName(s.claim)
	switch {
	case annotations.HasPaused(s.claim):
		return &halt{clusterv1.PausedReason, "this claim is paused: remove its annotation " + clusterv1.PausedAnnotation}
	case s.cluster == nil && name != "" && s.claim.DeletionTimestamp.IsZero():
		return &halt{v1alpha1.ReasonClusterNotFound, fmt.Sprintf("there is no Cluster %q: create it, or delete this claim", name)}
	case s.cluster != nil && annotations.IsPaused(s.cluster, s.cluster):
		return &halt{clusterv1.PausedReason, fmt.Sprintf("the Cluster %q is paused: set its spec.paused to false, and remove its annotation %s", name, clusterv1.PausedAnnotation)}
	}
	return c.poolHalted(s)
}

// poolHalted is that the pool is paused which the claim names, or has its address from.
func (c *Controller) poolHalted(s *scope) *halt {
	keys := []ipam.PoolKey{s.request.Pool}
	for _, record := range c.Ledger.HeldBy(s.holder()) {
		keys = append(keys, record.Pool)
	}
	for _, key := range keys {
		if pool, ok := c.Catalogue.Pool(key); ok && pool.Paused {
			return &halt{ipamv1.IPAddressClaimReadyPoolNotReadyReason, fmt.Sprintf("%s is paused by an annotation: have it removed", key)}
		}
	}
	return nil
}

// tellHalt says in the claim why nothing is done for it, where it has no address yet.
// One that has it keeps that, and its condition.
//
// "Abort reconciliation" in the contract does not forbid to say so: the contracts of
// other providers ask that a paused object shows it ("providers SHOULD surface the
// paused status of an object", infra-machine.md, "InfraMachine: pausing"), and Cluster
// API's own util/paused writes the status of paused objects. It stands in Ready, and
// not in a condition Paused, which would cost every claim one more write.
func (c *Controller) tellHalt(ctx context.Context, s *scope, why *halt) error {
	if s.claim.Status.AddressRef.Name != "" {
		return nil
	}
	before := s.claim.DeepCopy()
	conditions.Set(s.claim, metav1.Condition{
		Type: ipamv1.IPAddressClaimReadyCondition, Status: metav1.ConditionFalse, Reason: why.reason, Message: why.message,
	})
	_, err := c.writeStatus(ctx, before, s.claim)
	return err
}

// refuse says in a claim that our API group lacks the kind which it names. A reference
// cannot be changed, so that this is all that is ever done for it.
func (c *Controller) refuse(ctx context.Context, s *scope) error {
	unknown := convert.UnknownKind(s.claim.Spec.PoolRef.Kind)
	before := s.claim.DeepCopy()
	conditions.Set(s.claim, metav1.Condition{
		Type: ipamv1.IPAddressClaimReadyCondition, Status: metav1.ConditionFalse,
		Reason: ipamv1.IPAddressClaimReadyAllocationFailedReason, Message: unknown.Error() + ": make another claim",
	})
	return c.writeAndTell(ctx, before, s.claim)
}
