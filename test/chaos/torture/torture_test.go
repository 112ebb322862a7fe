package torture

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// The length of a test, and the seed of its choices.
const (
	durationEnv = "TORTURE_DURATION"
	seedEnv     = "TORTURE_SEED"
)

// By default, the choices are always the same, so that a failure points to a change; `make torture`
// makes others.
const usualSeed = 4

// longest bounds how long a storm lasts.
const longest = 8 * time.Minute

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard()) // client-go reports every call that is cut off
	os.Exit(m.Run())
}

// TestNoBlockIsAllocatedTwiceOrLost runs a short `make torture`: until there were enough
// allocations and faults to show anything, which takes a slow machine longer.
func TestNoBlockIsAllocatedTwiceOrLost(t *testing.T) {
	allocations, faults := 1200, 10
	if testing.Short() {
		allocations, faults = 400, 4
	}
	config := Config{Seed: suite.Seed(t, seedEnv, usualSeed), Storm: longest, Allocations: allocations, Faults: faults, Out: out(t, ""), Progress: t.Output()}
	if storm := suite.Setting(t, durationEnv, 0, time.ParseDuration); storm > 0 {
		config.Storm, config.Allocations, config.Faults = storm, 0, 0
	}
	report, err := Run(t.Context(), config)
	if report != nil && len(report.Violations) > 0 {
		t.Fatal(report.Explanation())
	}
	if err != nil {
		t.Fatal(err)
	}
	if report.Figures.Allocations < config.Allocations || report.Faults < config.Faults {
		t.Errorf("seed %d: %d allocations and %d faults in %.0f s are too few", report.Seed, report.Figures.Allocations, report.Faults, report.Storm)
	}
	t.Logf("seed %d: %d allocations, %d faults in %.0f s, %d operations in %d partitions are linearizable, no violation",
		report.Seed, report.Figures.Allocations, report.Faults, report.Storm, report.Linearizability.Operations, report.Linearizability.Partitions)
}

// out returns the folder of the reports, beside those of `make torture`.
func out(t *testing.T, sub string) string {
	t.Helper()
	root := suite.ModuleRoot(t)
	return root + "/out/torture/test" + sub
}

// found reports whether a run ended with a violation.
func found(err error) bool { return errors.Is(err, ErrViolated) }
