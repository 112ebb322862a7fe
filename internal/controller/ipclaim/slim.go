package ipclaim

import (
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Slimmer returns what makes a claim smaller that the cache is to keep, of which
// there may be a hundred thousand: what it has in common with others it shares with
// them, and what is never read goes. The conditions of one that is bound follow from
// the rest of its status, but for their times; in their place is a mark, and whoever
// writes the status reads the claim live first.
func Slimmer() func(*v1alpha1.IPClaim) {
	// The API server stores no condition without type: the mark is no claim's own.
	mark := []metav1.Condition{{}}
	return func(claim *v1alpha1.IPClaim) {
		if isSlim(claim) {
			return
		}
		delete(claim.Annotations, corev1.LastAppliedConfigAnnotation)
		share(claim)
		if tellsBound(claim) {
			claim.Status.Conditions = mark
		} else {
			shareIn(claim.Status.Conditions)
		}
	}
}

// isSlim says whether the conditions of a claim are as those of a claim that is
// bound, and left out.
func isSlim(claim *v1alpha1.IPClaim) bool {
	conditions := claim.Status.Conditions
	return len(conditions) == 1 && conditions[0].Type == ""
}

// tellsBound says whether the conditions of a claim are those that follow from the
// rest of its status.
func tellsBound(claim *v1alpha1.IPClaim) bool {
	status := &claim.Status
	if status.Phase != v1alpha1.ClaimBound || status.PoolRef == nil || status.ObservedGeneration != claim.Generation {
		return false
	}
	block, err := adapt.Block(field.NewPath("status", "allocatedCIDR"), status.AllocatedCIDR)
	told := ipam.Record{Block: block, Pool: adapt.PoolKey(claim.Namespace, *status.PoolRef)}
	return err == nil && haveAll(status.Conditions, bound(told).conditions(claim.Generation))
}

// share has a claim share its strings, but for those of its conditions, with other
// claims, and with itself.
func share(claim *v1alpha1.IPClaim) {
	spec, status := &claim.Spec, &claim.Status
	for _, s := range []*string{&claim.APIVersion, &claim.Kind, &claim.Namespace, &claim.GenerateName, &spec.ClassName} {
		common(s)
	}
	common(&spec.IPFamily)
	common(&spec.ReclaimPolicy)
	common(&status.Phase)
	for _, pool := range []*v1alpha1.PoolReference{spec.PoolRef, status.PoolRef} {
		if pool != nil {
			common(&pool.Kind)
			common(&pool.Name)
		}
	}
	if status.PoolRef != nil && spec.PoolRef != nil && *status.PoolRef == *spec.PoolRef {
		status.PoolRef = spec.PoolRef
	}
	if status.AllocatedCIDR == spec.CIDR {
		status.AllocatedCIDR = spec.CIDR
	}
	if record := status.BoundAllocationRef; record != nil && record.Name == spec.AllocationName {
		record.Name = spec.AllocationName
	}
}

// shareIn has conditions share their strings with those of other claims, and with
// each other.
func shareIn(conditions []metav1.Condition) {
	for i := range conditions {
		c := &conditions[i]
		common(&c.Type)
		common(&c.Status)
		common(&c.Reason)
		if first := conditions[0].Message; c.Message == first {
			c.Message = first
		}
	}
}

// common makes a string the one copy of itself.
func common[S ~string](s *S) { *s = S(unique.Make(string(*s)).Value()) }
