package operator

import (
	"strings"
	"testing"
)

// TestThePolicyOfTheRemovalKnowsEveryFinalizer compares it with what is removed.
func TestThePolicyOfTheRemovalKnowsEveryFinalizer(t *testing.T) {
	for _, p := range protections() {
		if !strings.Contains(removal, "'"+p.finalizer+"'") {
			t.Errorf("%s, of kind %s, could be put back", p.finalizer, p.kind.Kind)
		}
	}
	if !strings.Contains(removal, `"`+removalMessage) {
		t.Errorf("nothing in the policy says %q", removalMessage)
	}
}
