package webhooks

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestAllocationDeletionIsRefusedOnlyWhileHeld covers a deletion by a user: the operator can
// delete each.
func TestAllocationDeletionIsRefusedOnlyWhileHeld(t *testing.T) {
	s := newStage(t)
	record := claimRecord("team", "c", "10.0.0.16/28")
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
			req := review("IPAllocation", "", "", validating)
			req.UserInfo.Username = c.user
			raw, err := json.Marshal(obj)
			must(t, err)
			req.Operation, req.OldObject.Raw = admissionv1.Delete, raw
			response := s.validate["IPAllocation"].Handle(t.Context(), req)
			if response.Allowed == c.refused || c.refused && response.Result.Code != http.StatusConflict {
				t.Errorf("got %v, want that the deletion is refused: %t", response.Result, c.refused)
			}
		})
	}
}
