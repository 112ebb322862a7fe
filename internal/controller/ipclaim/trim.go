package ipclaim

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// Trim leaves of a claim that is Bound only what the controllers read from the cache, of
// which there may be a hundred thousand. Code that writes to a claim that isTrimmed reads it
// live first.
func Trim(claim *v1alpha1.IPClaim) {
	if !isReady(claim) {
		return
	}
	*claim = v1alpha1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
			DeletionTimestamp: claim.DeletionTimestamp,
		},
		Spec: v1alpha1.IPClaimSpec{
			CIDR: claim.Spec.CIDR, AllocationName: claim.Spec.AllocationName, ReclaimPolicy: claim.Spec.ReclaimPolicy,
		},
		Status: v1alpha1.IPClaimStatus{Phase: v1alpha1.ClaimBound},
	}
}

// isTrimmed reports whether Trim has left out most of a claim: the API server stores no
// claim that is Bound without conditions.
func isTrimmed(claim *v1alpha1.IPClaim) bool {
	return claim.Status.Phase == v1alpha1.ClaimBound && len(claim.Status.Conditions) == 0
}

// isReady reports whether the status of a claim is that of one that is Bound, with nothing
// wrong.
func isReady(claim *v1alpha1.IPClaim) bool {
	return claim.Status.Phase == v1alpha1.ClaimBound &&
		(isTrimmed(claim) || meta.IsStatusConditionTrue(claim.Status.Conditions, v1alpha1.ConditionReady))
}
