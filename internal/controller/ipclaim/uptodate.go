package ipclaim

import (
	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// upToDate reports whether a pass over the claim would change nothing: it is Bound, its
// record is seen and has the same block, and nothing else has that. It costs O(1).
func (c *Controller) upToDate(claim *v1alpha1.IPClaim) bool {
	if claim.Spec.AllocationName == "" || !isReady(claim) {
		return false
	}
	record, ok := c.Ledger.Record(ipam.Name{Namespace: claim.Namespace, Name: claim.Spec.AllocationName})
	return ok && isRecordOf(claim, record) && c.Allocator.Confirmed(record) == nil && c.Ledger.Conflict(record) == nil
}

// isRecordOf reports whether the record is the claim's and as the claim has it: whether
// verify would find nothing to do about it.
func isRecordOf(claim *v1alpha1.IPClaim, record ipam.Record) bool {
	policy := ipam.Reclaim(claim.Spec.ReclaimPolicy)
	return record.Holder == convert.HolderOfClaim(ipam.Name{Namespace: claim.Namespace, Name: claim.Name}) &&
		record.MayBeOf(string(claim.UID)) &&
		record.State == ipam.StateBound && !record.Terminating &&
		record.Block.String() == claim.Spec.CIDR &&
		(policy == "" || policy == record.Reclaim) &&
		(!record.Adopted || record.IsStamped())
}
