package ipclaim

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// settled says whether a pass over the claim would change nothing: its record is
// in the picture and says the same, and so does its status. A leader that is new
// finds nearly all claims like that, and those who wait are not to wait for them.
// It costs O(1), and is never true where a pass would do something.
func (c *Controller) settled(claim *v1alpha1.IPClaim) bool {
	if !claim.DeletionTimestamp.IsZero() || claim.Spec.AllocationName == "" || claim.Status.Phase != v1alpha1.ClaimBound {
		return false
	}
	record, ok := c.Allocator.Ledger().Record(ipam.Name{Namespace: claim.Namespace, Name: claim.Spec.AllocationName})
	_, errs := adapt.Claim(claim)
	return ok && len(errs) == 0 && isRecordOf(claim, record) && tells(claim, record)
}

// isRecordOf says whether the record is the claim's and as the claim has it: what
// verify would find nothing to do about.
func isRecordOf(claim *v1alpha1.IPClaim, record ipam.Record) bool {
	policy := ipam.Reclaim(claim.Spec.ReclaimPolicy)
	return record.Holder == allocator.HolderOfClaim(ipam.Name{Namespace: claim.Namespace, Name: claim.Name}) &&
		sameHolder(record.HolderUID, string(claim.UID)) &&
		record.State == ipam.Bound && !record.Terminating &&
		record.Block.String() == claim.Spec.CIDR &&
		(policy == "" || policy == record.Reclaim) &&
		(!record.Adopted || record.HolderUID != "")
}

// tells says whether the status is what a pass would write.
func tells(claim *v1alpha1.IPClaim, record ipam.Record) bool {
	status := &claim.Status
	return status.ObservedGeneration == claim.Generation &&
		status.AllocatedCIDR == claim.Spec.CIDR && status.Address == adapt.Address(record.Block) &&
		status.PoolRef != nil && *status.PoolRef == *adapt.PoolReference(record.Pool) &&
		status.BoundAllocationRef != nil && status.BoundAllocationRef.Name == record.Name.Name &&
		(isSlim(claim) || haveAll(status.Conditions, bound(record).conditions(claim.Generation)))
}

// haveAll says whether the conditions are among those of a status, whenever they
// came to be.
func haveAll(has []metav1.Condition, wanted [4]metav1.Condition) bool {
	for _, want := range wanted {
		if !slices.ContainsFunc(has, func(c metav1.Condition) bool {
			c.LastTransitionTime = metav1.Time{}
			return c == want
		}) {
			return false
		}
	}
	return true
}
