package webhooks

import (
	"net/netip"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestAllocationDeletionIsRefusedOnlyWhileHeld covers a deletion by a user: the operator can
// delete each.
func TestAllocationDeletionIsRefusedOnlyWhileHeld(t *testing.T) {
	record := ipam.Record{
		Name: ipam.Name{Namespace: "team", Name: "c-12345678"}, Block: netip.MustParsePrefix("10.0.0.16/28"), Pool: ipam.PoolNamed("p"),
		Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, Holder: convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: "c"}),
	}
	for name, c := range map[string]struct {
		state   ipam.State
		change  func(*v1alpha1.IPAllocation)
		user    string
		refused bool
	}{
		"held":                     {state: ipam.StateBound, refused: true},
		"held, by the operator":    {state: ipam.StateBound, user: operator},
		"held, deleted already":    {state: ipam.StateBound, change: func(r *v1alpha1.IPAllocation) { r.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }},
		"held, without a block":    {state: ipam.StateBound, change: func(r *v1alpha1.IPAllocation) { r.Spec.CIDR = "nonsense" }},
		"retained":                 {state: ipam.StateRetained},
		"cooling down":             {state: ipam.StateCooling},
		"the operator releases it": {state: ipam.StateReleasing},
	} {
		t.Run(name, func(t *testing.T) {
			record.State = c.state
			obj := convert.Allocation(record)
			if c.change != nil {
				c.change(obj)
			}
			ctx := admission.NewContextWithRequest(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Delete, UserInfo: authenticationv1.UserInfo{Username: c.user},
			}})
			if _, err := (&allocationValidator{operator: operator}).ValidateDelete(ctx, obj); apierrors.IsConflict(err) != c.refused || err != nil && !c.refused {
				t.Errorf("got %v, want that the deletion is refused: %t", err, c.refused)
			}
		})
	}
}
