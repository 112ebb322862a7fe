package mutants

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// quick is the time up to which tests of one binary run together.
	quick = 300 * time.Millisecond
	// patience times its time without mutant, plus leastPatience, ends a test: then a loop does not
	// end any more, or a wait lasts for ever.
	patience      = 10
	leastPatience = 5 * time.Second
	// likelier bounds how many times longer than another a test that noticed the last mutant of the
	// function may take, and still come before it.
	likelier = 10
	// stopping is the time that a suite of Ginkgo has to stop its control plane when it is interrupted.
	stopping = 10 * time.Second
	// long is the time of a test beyond which its subtests run one by one.
	long = 2 * time.Second
)

// Places holds the places in which tests run, each with its additional environment variables, such
// as for a control plane, which one test can use at a time.
type Places chan []string

// NewPlaces returns a place for each environment.
func NewPlaces(environments ...[]string) Places {
	places := make(Places, len(environments))
	for _, environment := range environments {
		places <- environment
	}
	return places
}

// each calls f with 0 to n-1, each in a place.
func (p Places) each(n int, f func(i int, environment []string)) {
	var calls errgroup.Group
	calls.SetLimit(cap(p))
	for i := range n {
		calls.Go(func() error {
			environment := <-p
			defer func() { p <- environment }()
			f(i, environment)
			return nil
		})
	}
	_ = calls.Wait() // none of them fails
}

// Test represents one test, as it runs without any mutant.
type Test struct {
	Binary Binary
	Name   string
	Took   time.Duration
	// Reaches holds the mutants that it runs into.
	Reaches map[int]bool

	// ran holds the names of the test and its subtests, in the order in which they ran.
	ran []string
}

// Outcome represents the outcome of a mutant.
type Outcome string

// These are the outcomes.
const (
	Noticed   Outcome = "noticed"
	Endless   Outcome = "timed out" // counts as noticed
	Survived  Outcome = "survived"
	Unreached Outcome = "unreached" // no test runs into it
)

// Result holds a mutant and its outcome.
type Result struct {
	Mutant
	Outcome Outcome
	// By is the test that noticed the mutant, or the quick tests that ran together with it.
	By string `json:",omitempty"`
}

// Measure runs each test alone, without mutants. All must pass. The subtests of a long test count
// as separate tests, if each passes alone.
func Measure(ctx context.Context, binaries []Binary, scratch string, places Places) ([]Test, error) {
	var tests []*Test
	for _, b := range binaries {
		names, err := b.list(ctx)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			tests = append(tests, &Test{Binary: b, Name: name})
		}
	}
	if err := errors.Join(measureAll(ctx, tests, filepath.Join(scratch, "reached-"), places)...); err != nil {
		return nil, err
	}
	var measured []Test
	for i, t := range tests {
		parts := t.parts()
		if t.Took > long && len(parts) > 0 && errors.Join(measureAll(ctx, parts, filepath.Join(scratch, fmt.Sprintf("reached-%d-", i)), places)...) == nil {
			for _, part := range parts {
				measured = append(measured, *part)
			}
			continue
		}
		measured = append(measured, *t)
	}
	return measured, nil
}

// measureAll measures tests, each with a separate file for the mutants that it reaches.
func measureAll(ctx context.Context, tests []*Test, reached string, places Places) []error {
	errs := make([]error, len(tests))
	places.each(len(tests), func(i int, environment []string) {
		errs[i] = tests[i].measure(ctx, reached+strconv.Itoa(i), environment)
	})
	return errs
}

// parts returns the subtests of a test. It returns none if one of them has a slash in its name,
// because a slash begins a subtest of a subtest.
func (t *Test) parts() []*Test {
	var parts []*Test
	seen := map[string]bool{t.Name: true}
	for _, name := range t.ran {
		parent := name[:max(strings.LastIndex(name, "/"), 0)]
		switch {
		case !seen[parent] && name != t.Name:
			return nil
		case parent == t.Name:
			parts = append(parts, &Test{Binary: t.Binary, Name: name})
		}
		seen[name] = true
	}
	return parts
}

// measuring matches the names of tests that measure CPU time: code with mutants takes a multiple of
// it.
var measuring = regexp.MustCompile(`(CostsLittle|IsCheap)$`)

// list returns the names of the tests, and of the fuzz tests, which run on their recorded inputs.
// It leaves out the tests that measure CPU time.
func (b Binary) list(ctx context.Context) ([]string, error) {
	list := exec.CommandContext(ctx, b.Path, "-test.list", "^(Test|Fuzz)")
	list.Dir = b.Dir
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the tests of %s: %w", b.Package, err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), measuring.MatchString), nil
}

func (t *Test) measure(ctx context.Context, reached string, environment []string) error {
	began := time.Now()
	out, err := t.Binary.run(ctx, []string{t.Name}, append(slices.Clone(environment), "MUTANTS_REACHED="+reached)...)
	if err != nil {
		return fmt.Errorf("%s of %s fails without any mutant: %w\n%s", t.Name, t.Binary.Package, err, out)
	}
	t.Took, t.Reaches = time.Since(began), map[int]bool{}
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "=== RUN   "); ok {
			t.ran = append(t.ran, name)
		}
	}
	f, err := os.Open(reached)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		id, err := strconv.Atoi(lines.Text())
		if err != nil {
			return fmt.Errorf("%s: %w", reached, err)
		}
		t.Reaches[id] = true
	}
	return nil
}

// run runs some of the tests: subtests of one test, or tests.
func (b Binary) run(ctx context.Context, names []string, env ...string) ([]byte, error) {
	run := exec.CommandContext(ctx, b.Path, "-test.short", "-test.failfast", "-test.v", "-test.run", pattern(names))
	run.Dir, run.Env = b.Dir, append(os.Environ(), env...)
	var out bytes.Buffer
	run.Stdout, run.Stderr = &out, &out
	run.Cancel, run.WaitDelay = func() error { return run.Process.Signal(os.Interrupt) }, stopping
	err := run.Run()
	return out.Bytes(), err
}

// pattern returns a pattern that matches the tests of these names. Subtests must be of one test.
func pattern(names []string) string {
	parent, last := parentOf(names[0]), make([]string, len(names))
	for i, name := range names {
		last[i] = regexp.QuoteMeta(strings.TrimPrefix(name, parent+"/"))
	}
	matches := "^(" + strings.Join(last, "|") + ")$"
	if parent == "" {
		return matches
	}
	return "^" + parent + "$/" + matches
}

// parentOf returns the name of the test of a subtest, and an empty name for a test.
func parentOf(name string) string {
	parent, _, isPart := strings.Cut(name, "/")
	if !isPart {
		return ""
	}
	return parent
}

// Run turns each mutant on, one in each place at a time, and runs the tests that reach it until one
// fails; for an explained mutant, which survives, only those of its own package. It calls report
// with each result, one at a time. When ctx is done, it leaves out the remaining mutants.
func Run(ctx context.Context, all []Mutant, tests []Test, places Places, report func(Result)) {
	var reporting sync.Mutex
	noticers := map[string]string{} // by function: the tests that noticed its last mutant
	places.each(len(all), func(i int, environment []string) {
		function := all[i].File + " " + all[i].Function
		reporting.Lock()
		groups := groupsOf(all[i], tests, noticers[function])
		reporting.Unlock()
		result := judge(ctx, all[i], groups, environment)
		reporting.Lock()
		defer reporting.Unlock()
		if ctx.Err() == nil { // else the end of ctx may have cut off the test
			noticers[function] = result.By
			report(result)
		}
	})
}

// group holds tests of one binary that run in one process.
type group struct {
	binary Binary
	names  []string
	took   time.Duration
}

func (g *group) String() string {
	if len(g.names) > 3 {
		return fmt.Sprintf("%d quick tests of %s", len(g.names), g.binary.Package)
	}
	return strings.Join(g.names, ", ")
}

func judge(ctx context.Context, m Mutant, groups []*group, environment []string) Result {
	if len(groups) == 0 {
		return Result{Mutant: m, Outcome: Unreached}
	}
	for _, g := range groups {
		limited, stop := context.WithTimeout(ctx, patience*g.took+leastPatience)
		_, err := g.binary.run(limited, g.names, append(slices.Clone(environment), fmt.Sprint("MUTANT=", m.ID))...)
		timeIsUp := limited.Err() != nil
		stop()
		switch {
		case timeIsUp:
			return Result{m, Endless, g.String()}
		case err != nil:
			return Result{m, Noticed, g.String()}
		}
	}
	return Result{Mutant: m, Outcome: Survived}
}

// groupsOf returns the tests that judge a mutant in groups, those with the longest tests last, but for
// the likely group.
func groupsOf(m Mutant, tests []Test, likely string) []*group {
	together := map[string]*group{}
	var groups []*group
	for _, t := range tests {
		switch {
		case !t.Reaches[m.ID], m.IsExplained && !strings.HasSuffix(t.Binary.Package, "/"+path.Dir(m.File)):
		case t.Took > quick:
			groups = append(groups, &group{t.Binary, []string{t.Name}, t.Took})
		case together[t.Binary.Path+parentOf(t.Name)] != nil:
			g := together[t.Binary.Path+parentOf(t.Name)]
			g.names, g.took = append(g.names, t.Name), g.took+t.Took
		default:
			g := &group{t.Binary, []string{t.Name}, t.Took}
			together[t.Binary.Path+parentOf(t.Name)] = g
			groups = append(groups, g)
		}
	}
	rank := func(g *group) time.Duration { // most of the time of a quick test is the start of its process
		mean := g.took / time.Duration(len(g.names))
		if g.String() == likely {
			return mean / likelier
		}
		return mean
	}
	slices.SortStableFunc(groups, func(a, b *group) int { return cmp.Compare(rank(a), rank(b)) })
	return groups
}
