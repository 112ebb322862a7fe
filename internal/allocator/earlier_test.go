package allocator

import (
	"errors"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestRecordOfEarlierAttemptIsTransientForSameClaim sends a request again that failed after it was
// recorded, as clients do after an answer that asks for it.
func TestRecordOfEarlierAttemptIsTransientForSameClaim(t *testing.T) {
	for name, c := range map[string]struct {
		claim  string
		state  ipam.State
		origin Origin
		want   func(error) bool
	}{
		"of the same claim":                 {"x", ipam.StateBound, OriginAdmission, ipam.IsTransient},
		"of another claim":                  {"y", ipam.StateBound, OriginAdmission, isA[*ipam.TakenError]},
		"cooling down, which may take long": {"x", ipam.StateCooling, OriginAdmission, isA[*ipam.TakenError]},
		"seen by a controller, which waits": {"x", ipam.StateBound, OriginController, isA[*ipam.TakenError]},
	} {
		t.Run(name, func(t *testing.T) {
			runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
				openParent(a)
				earlier := heldBlock("x", "10.0.0.0/28")
				earlier.State = c.state
				earlier = api.stores(t, earlier)
				order := claimOrder(c.claim, 28)
				order.Terms.Block, order.Origin, order.HolderUID = earlier.Block, c.origin, "uid"
				if c.origin == OriginAdmission {
					order.HolderUID = ""
				}
				_, err := a.Allocate(t.Context(), order)
				if !c.want(err) {
					t.Errorf("got %v", err)
				}
				if isEarlier := errors.Is(err, ipam.ErrEarlierAttempt); isEarlier != (name == "of the same claim") {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}
