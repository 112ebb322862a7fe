package ipclaim

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/authorize"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// outcome returns the outcome of a pass for the status of the claim. The error is for the work
// queue, which retries with back-off. A claim that waits is not tried again, but notified when it
// is its turn. A claim whose block another holder has is tried again: it has no turn, because it
// must get that block and no other.
func (c *Controller) outcome(s *scope, err error) (convert.ClaimOutcome, error) {
	if err == nil {
		pool, _ := c.Catalog.Pool(s.record.Pool)
		outcome := convert.ClaimBound(s.record, pool)
		outcome.Conflict = s.conflict
		return outcome, nil
	}
	if errors.Is(err, errNotSeen) || kubeutil.IsNamespaceTerminating(err) {
		return convert.ClaimOutcome{}, nil
	}
	outcome := convert.ClaimWaits(err)
	if parked, ok := errors.AsType[*ipam.ParkedError](err); ok {
		return outcome, kubeutil.Reported(parked.Cause)
	}
	_, isTaken := errors.AsType[*ipam.TakenError](err)
	switch {
	case outcome.Phase == "":
		return outcome, err
	case isTaken && s.claim.Spec.AllocationName != "":
		return outcome, kubeutil.Reported(err)
	}
	return outcome, nil
}

// write writes the changes of spec and status in one patch, if the claim is still as it was read,
// or as requestGrant has written it. After a conflict a record that was made is found again, or
// collected.
func (c *Controller) write(ctx context.Context, before, claim *v1alpha1.IPClaim) (isWritten bool, err error) {
	if equality.Semantic.DeepEqual(before.Spec, claim.Spec) && equality.Semantic.DeepEqual(before.Status, claim.Status) {
		return false, nil
	}
	base := claim.DeepCopy() // in the version in which the right to use the pool may have been written
	base.Spec, base.Status = before.Spec, before.Status
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	err = c.Client.Patch(ctx, claim, authorize.WithoutRequester(claim, patch))
	if err != nil {
		return false, kubeutil.IgnoreNotFound(fmt.Errorf("writing the claim: %w", err))
	}
	return true, nil
}
