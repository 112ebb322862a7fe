package ipclaim

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/absent"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// standing is what a claim's conditions say.
type standing struct {
	phase           v1alpha1.ClaimPhase
	reason, message string
}

// settle is the one place that decides what an error means for a claim. What it
// returns is for the queue: to be retried with back-off. A claim that waits is
// not retried; it is woken. One whose block somebody else holds is: it is not in
// the queue, because it must get that block and no other. Who that is, is told to
// those who may know.
func settle(s *scope, err error) error {
	now, retry := stand(s, err)
	if now.phase != "" {
		now.writeTo(s)
	}
	return retry
}

func stand(s *scope, err error) (standing, error) {
	var missing *ipam.MissingError
	var policy *ipam.PolicyError
	var exhausted *ipam.ExhaustedError
	var taken *ipam.TakenError
	switch {
	case err == nil:
		return bound(s.record), nil
	case errors.Is(err, errNotSeen):
		return standing{}, nil
	case errors.As(err, &missing):
		return standing{v1alpha1.ClaimPending, missing.Reason, missing.Message}, nil
	case errors.As(err, &policy):
		return standing{v1alpha1.ClaimPending, v1alpha1.ReasonPolicyViolation, policy.Error()}, nil
	case errors.As(err, &exhausted):
		return standing{v1alpha1.ClaimExhausted, v1alpha1.ReasonPoolExhausted, exhausted.Shortage() + ": the claim is bound as soon as one is released"}, nil
	case errors.As(err, &taken):
		now := standing{v1alpha1.ClaimPending, v1alpha1.ReasonConflict, taken.Error() + ": delete this claim and make a new one, or have the other released"}
		if s.claim.Spec.AllocationName == "" {
			return now, nil // it is in the queue, and woken
		}
		return now, err
	default:
		return standing{}, err
	}
}

// bound is where a claim stands whose block is held by the record.
func bound(record ipam.Record) standing {
	return standing{v1alpha1.ClaimBound, v1alpha1.ReasonBound, fmt.Sprintf("%s of %s is held for this claim", record.Block, record.Pool)}
}

func (now standing) writeTo(s *scope) {
	status := &s.claim.Status
	status.ObservedGeneration, status.Phase = s.claim.Generation, now.phase
	status.AllocatedCIDR, status.Address, status.PoolRef, status.BoundAllocationRef = "", "", nil, nil
	if now.phase == v1alpha1.ClaimBound {
		status.AllocatedCIDR, status.Address = s.record.Block.String(), adapt.Address(s.record.Block)
		status.PoolRef = adapt.PoolReference(s.record.Pool)
		status.BoundAllocationRef = &v1alpha1.AllocationReference{Name: s.record.Name.Name}
	}
	for _, condition := range now.conditions(s.claim.Generation) {
		meta.SetStatusCondition(&status.Conditions, condition)
	}
}

// conditions are those of a claim, without times.
func (now standing) conditions(generation int64) [4]metav1.Condition {
	condition := func(kind string, is bool) metav1.Condition {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: now.reason, Message: now.message, ObservedGeneration: generation}
		if is {
			c.Status = metav1.ConditionTrue
		}
		return c
	}
	return [4]metav1.Condition{
		condition(v1alpha1.ConditionReady, now.phase == v1alpha1.ClaimBound),
		condition(v1alpha1.ConditionPending, now.phase == v1alpha1.ClaimPending),
		condition(v1alpha1.ConditionBound, now.phase == v1alpha1.ClaimBound),
		condition(v1alpha1.ConditionExhausted, now.phase == v1alpha1.ClaimExhausted),
	}
}

// writeStatus writes the status if it changed. A conflict means that there is a
// newer version of the claim, which is looked at when the cache has it. It is an
// update and not a patch, which costs the API server more: that would first write
// the claim as JSON, merge, and read it again. What the cache leaves out, managed
// fields, the API server keeps as they are.
func (c *Controller) writeStatus(ctx context.Context, before, claim *v1alpha1.IPClaim) error {
	if equality.Semantic.DeepEqual(before.Status, claim.Status) {
		return nil
	}
	err := c.Client.Status().Update(ctx, claim)
	if err != nil && !apierrors.IsConflict(err) && !absent.Is(err) {
		return fmt.Errorf("writing status: %w", err)
	}
	return nil
}
