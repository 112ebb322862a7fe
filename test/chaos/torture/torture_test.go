package torture

import (
	"cmp"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/chaos/torture/witness"
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
	allocations, faults := suite.Sized(1200, 400), suite.Sized(10, 4)
	config := Config{Seed: suite.Seed(t, seedEnv, usualSeed), Storm: longest, Allocations: allocations, Faults: faults, Out: out(t, ""), Progress: t.Output()}
	if storm := suite.Setting(t, durationEnv, 0, time.ParseDuration); storm > 0 {
		config.Storm, config.Allocations, config.Faults = storm, 0, 0
	}
	report, err := Run(t.Context(), config)
	if report != nil && len(report.Violations) > 0 {
		t.Fatal(report.Explanation())
	}
	suite.Must(t, err)
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

// selftestEnv asks for all failpoints; otherwise there is time for the first alone.
const selftestEnv = "TORTURE_SELFTEST"

// loses holds the violations that a failpoint may lead to: a block with two holders, or a holder
// without record, its own or its pool's.
var loses = []string{"TWO HOLDERS", "was released while", "has no record of its block"}

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

func TestMarkdownHasFigures(t *testing.T) {
	r := &Report{Seed: 7, Faults: 3, Began: time.Unix(0, 0), ByKind: map[string]Outage{"kill etcd": {Count: 3, Longest: 1.25}}}
	for _, want := range []string{"SEED=7", "| kill etcd | 3 | 1.2 |", "| **violations** | 0 |"} {
		if text := r.Markdown(); strings.Count(text, want) != 1 {
			t.Errorf("want %q once in:\n%s", want, text)
		}
	}
}

func TestOutageCountsForOverlappingFaults(t *testing.T) {
	s := &service{gaps: []gap{{second(10), second(13)}, {second(20), second(21)}}}
	got := s.outages([]fault{
		{Kind: "kill", Began: second(9), Ended: second(11)},
		{Kind: "kill", Began: second(19), Ended: second(22)},
		{Kind: "cut", Began: second(14), Ended: second(15)},
	})
	if got["kill"] != (Outage{Count: 2, Longest: 3}) || got["cut"] != (Outage{Count: 1}) {
		t.Errorf("%+v", got)
	}
}

// second returns the time so many seconds after the beginning.
func second(n int) time.Time { return time.Unix(1_000_000+int64(n), 0) }

// life represents the holding of a block: when it was requested and allocated, and when its end was
// requested and seen; no end is 0.
type life struct {
	who, block                        string
	asked, allocated, ending, release int
}

func check(lives ...life) Linearizability {
	asked, releasing := map[string]time.Time{}, map[string]time.Time{}
	var all []witness.Life
	for _, l := range lives {
		one := witness.Life{UID: l.who, Attempt: l.who, Place: "pool", Block: netip.MustParsePrefix(l.block), Allocated: second(l.allocated), Changed: second(l.allocated)}
		asked[l.who] = second(l.asked)
		if l.release > 0 {
			one.Released, releasing[l.who] = second(l.release), second(l.ending)
		}
		all = append(all, one)
	}
	return checkLinearizable(asked, releasing, all)
}

func TestLinearizability(t *testing.T) {
	for _, test := range []struct {
		what  string
		bad   bool
		lives []life
	}{
		{"one after the other", false, []life{{"a", "10.0.0.0/24", 1, 2, 3, 4}, {"b", "10.0.0.0/25", 5, 6, 0, 0}}},
		{"asked for while the other exists, allocated when it is gone", false, []life{{"a", "10.0.0.0/24", 1, 2, 4, 6}, {"b", "10.0.0.0/25", 3, 7, 0, 0}}},
		{"allocated before the end of the other was seen, but after it was asked for", false, []life{{"a", "10.0.0.0/24", 1, 2, 4, 8}, {"b", "10.0.0.0/25", 3, 7, 0, 0}}},
		{"allocated before a client asked for the end of the other", true, []life{{"a", "10.0.0.0/24", 1, 2, 7, 8}, {"b", "10.0.0.0/25", 3, 4, 0, 0}}},
		{"both at the same time, and both stay", true, []life{{"a", "10.0.0.0/24", 1, 5, 0, 0}, {"b", "10.0.0.7/32", 1, 5, 0, 0}}},
		{"next to each other", false, []life{{"a", "10.0.0.0/25", 1, 5, 0, 0}, {"b", "10.0.0.128/25", 1, 5, 0, 0}}},
		{"a third comes in a later piece, while the first is still there", true, []life{
			{"a", "10.0.0.0/25", 1, 2, 0, 0}, {"b", "10.0.0.128/25", 4, 5, 7, 8}, {"c", "10.0.0.0/24", 10, 11, 0, 0},
		}},
	} {
		t.Run(test.what, func(t *testing.T) {
			got := check(test.lives...)
			if len(got.Unknown) > 0 || (len(got.Bad) > 0) != test.bad {
				t.Errorf("%+v", got)
			}
		})
	}
}
