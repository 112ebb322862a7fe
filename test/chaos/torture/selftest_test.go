package torture

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// selftestEnv asks for all failpoints; otherwise there is time for the first alone.
const selftestEnv = "TORTURE_SELFTEST"

// loses holds the violations that a failpoint may lead to: a block with two holders, or a holder
// without record.
var loses = []string{"TWO HOLDERS", "was released while it holds the block", "has no record of its block"}

// TestHarnessDetectsFailpoints breaks the operator's promises, one at a time, in a binary that
// is built for that, and expects a report of it within a minute.
//
// To answer before the first list is, by itself, no way to two holders here: a record shows up in
// one's own watch only with everything older than it, and a list shows all at once; a replica that
// was too early gives way then, and all that can be seen is that a client gets the answer that a
// pool is full, or not ready. So that failpoint is the fault as others have it: a replica waits for
// nothing before the first list, and the creation of the record counts as its confirmation.
func TestHarnessDetectsFailpoints(t *testing.T) {
	root := suite.ModuleRoot(t)
	often := map[string]string{"skip-pool-check": poolsReplaced}
	for i, failpoint := range failpoints() {
		t.Run(failpoint.name, func(t *testing.T) {
			if i > 0 && os.Getenv(selftestEnv) == "" {
				t.Skip("make torture-selftest runs it")
			}
			report, err := Run(t.Context(), Config{
				Seed: suite.Seed(t, seedEnv, usualSeed), Storm: time.Minute, Binary: failpoint.build(t, root), Often: cmp.Or(often[failpoint.name], slowFirstList),
				Out: out(t, "/"+failpoint.name), Progress: t.Output(),
			})
			switch {
			case err != nil && !found(err):
				t.Fatal(err)
			case report.FoundAfter <= 0 || report.FoundAfter > 60:
				t.Fatalf("seed %d: nothing was found in %d allocations and %d faults", report.Seed, report.Figures.Allocations, report.Faults)
			}
			violation := report.Violations[0]
			t.Logf("seed %d: found after %.1f s: %s", report.Seed, report.FoundAfter, violation)
			if !slices.ContainsFunc(loses, func(what string) bool { return strings.Contains(violation, what) }) {
				t.Errorf("seed %d: the violation is not that a block has two holders or none: %s", report.Seed, violation)
			}
		})
	}
}
