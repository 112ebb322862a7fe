package operator

import (
	"strings"
	"testing"
)

// TestRemovalPolicyListsEveryFinalizer compares the policy with the removed finalizers.
func TestRemovalPolicyListsEveryFinalizer(t *testing.T) {
	for _, p := range protections() {
		if !strings.Contains(removal, "'"+p.finalizer+"'") {
			t.Errorf("%s, of kind %s, could be put back", p.finalizer, p.kind.Kind)
		}
	}
	if !strings.Contains(removal, `"`+removalMessage) {
		t.Errorf("the policy does not contain %q", removalMessage)
	}
}
