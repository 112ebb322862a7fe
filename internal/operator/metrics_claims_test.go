package operator

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

func TestClaimsAreCountedByPhaseAndReason(t *testing.T) {
	ready := func(reason string) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionReady, Reason: reason}}
	}
	addressClaim := func(group string, status ipamv1.IPAddressClaimStatus) *ipamv1.IPAddressClaim {
		return &ipamv1.IPAddressClaim{Spec: ipamv1.IPAddressClaimSpec{PoolRef: ipamv1.IPPoolReference{APIGroup: group}}, Status: status}
	}
	ours := v1alpha1.GroupVersion.Group
	for name, c := range map[string]struct {
		obj  any
		want claimKey
	}{
		"a claim as the cache keeps it": {&v1alpha1.IPClaim{Status: v1alpha1.IPClaimStatus{Phase: v1alpha1.ClaimBound}}, claimKey{"IPClaim", "Bound", "Bound"}},
		"one that is Bound with a conflict": {
			&v1alpha1.IPClaim{Status: v1alpha1.IPClaimStatus{Phase: v1alpha1.ClaimBound, Conditions: ready(v1alpha1.ReasonConflict)}},
			claimKey{"IPClaim", "Bound", "Conflict"},
		},
		"one that waits": {
			&v1alpha1.IPClaim{Status: v1alpha1.IPClaimStatus{Phase: v1alpha1.ClaimPending, Conditions: ready(v1alpha1.ReasonClassNotFound)}},
			claimKey{"IPClaim", "Pending", "ClassNotFound"},
		},
		"Cluster API's, new":      {addressClaim(ours, ipamv1.IPAddressClaimStatus{}), claimKey{"IPAddressClaim", "Pending", ""}},
		"Cluster API's, Bound":    {addressClaim(ours, ipamv1.IPAddressClaimStatus{AddressRef: ipamv1.IPAddressReference{Name: "a"}, Conditions: ready("AddressAllocated")}), claimKey{"IPAddressClaim", "Bound", "AddressAllocated"}},
		"Cluster API's, no room":  {addressClaim(ours, ipamv1.IPAddressClaimStatus{Conditions: ready(ipamv1.IPAddressClaimReadyPoolExhaustedReason)}), claimKey{"IPAddressClaim", "Exhausted", "PoolExhausted"}},
		"another provider's":      {addressClaim("ipam.metal3.io", ipamv1.IPAddressClaimStatus{}), claimKey{}},
		"an object of other kind": {&v1alpha1.IPPool{}, claimKey{}},
	} {
		got, counted := keyOfClaim(c.obj)
		if !counted {
			got, counted = keyOfAddressClaim(c.obj)
		}
		if got != c.want || counted != (c.want != claimKey{}) {
			t.Errorf("%s is counted (%t) as %+v, want %+v", name, counted, got, c.want)
		}
	}
}
