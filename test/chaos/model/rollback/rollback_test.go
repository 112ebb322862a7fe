package rollback

import (
	"strings"
	"testing"
)

var small = Scenario{Records: 2, Others: 1, Deletions: 1}

func TestNoBlockHasTwoHoldersAfterStoreRollback(t *testing.T) {
	found := New(small, 0).Explore()
	if found.Violation != "" {
		t.Errorf("%s:\n  %s", found.Violation, strings.Join(found.Trace, "\n  "))
	}
	t.Logf("%d states, %d steps", found.States, found.Steps)
}

// TestEveryStoreRollbackRuleIsNeeded leaves one out at a time.
func TestEveryStoreRollbackRuleIsNeeded(t *testing.T) {
	for _, rule := range []Rules{Compare, Again, Forget, Ask, Running} {
		t.Run("without: "+rule.String(), func(t *testing.T) {
			found := New(small, rule).Explore()
			if found.Violation == "" {
				t.Fatalf("%d states, and no violation", found.States)
			}
			t.Logf("without %q %s, found among %d states:\n  %s", rule, found.Violation, found.States, strings.Join(found.Trace, "\n  "))
		})
	}
}
