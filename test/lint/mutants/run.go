package mutants

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// quick tests of one binary are run together.
	quick = 300 * time.Millisecond
	// A test that takes patience times as long as without mutant, and leastPatience, is
	// ended: a loop does not end any more, or something waits for ever.
	patience      = 10
	leastPatience = 5 * time.Second
)

// Test is one test, as it is without any mutant.
type Test struct {
	Binary Binary
	Name   string
	Took   time.Duration
	// Reaches are the mutants that it runs into.
	Reaches map[int]bool
}

// Outcome is what became of a mutant.
type Outcome string

// Outcomes.
const (
	Noticed   Outcome = "noticed"
	Endless   Outcome = "timed out" // which is noticed, too
	Survived  Outcome = "survived"
	Unreached Outcome = "unreached" // no test runs into it
)

// Result is a mutant and what became of it.
type Result struct {
	Mutant
	Outcome Outcome
	// By is the test that noticed it, or, of a quick one, the tests among which it is.
	By string `json:",omitempty"`
}

// Measure runs each test alone, without mutants, up to so many at a time. All have to pass.
func Measure(ctx context.Context, binaries []Binary, scratch string, atATime int) ([]Test, error) {
	var tests []Test
	for _, b := range binaries {
		names, err := b.list(ctx)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			tests = append(tests, Test{Binary: b, Name: name})
		}
	}
	errs := make([]error, len(tests))
	parallel(len(tests), atATime, func(i int) {
		errs[i] = tests[i].measure(ctx, filepath.Join(scratch, fmt.Sprintf("reached-%d", i)))
	})
	return tests, errors.Join(errs...)
}

// list are the names of the tests, and of the fuzz tests, which run on what they have seen.
func (b Binary) list(ctx context.Context) ([]string, error) {
	list := exec.CommandContext(ctx, b.Path, "-test.list", "^(Test|Fuzz)")
	list.Dir = b.Dir
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the tests of %s: %w", b.Package, err)
	}
	return strings.Fields(string(out)), nil
}

func (t *Test) measure(ctx context.Context, reached string) error {
	began := time.Now()
	out, err := t.Binary.run(ctx, []string{t.Name}, "MUTANTS_REACHED="+reached)
	if err != nil {
		return fmt.Errorf("%s of %s fails without any mutant: %w\n%s", t.Name, t.Binary.Package, err, out)
	}
	t.Took, t.Reaches = time.Since(began), map[int]bool{}
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

// run runs some of the tests.
func (b Binary) run(ctx context.Context, names []string, env ...string) ([]byte, error) {
	run := exec.CommandContext(ctx, b.Path, "-test.short", "-test.failfast", "-test.run", "^("+strings.Join(names, "|")+")$")
	run.Dir, run.Env = b.Dir, append(os.Environ(), env...)
	var out bytes.Buffer
	run.Stdout, run.Stderr = &out, &out
	run.WaitDelay = time.Second
	err := run.Run()
	return out.Bytes(), err
}

// Run turns each mutant on, so many at a time, and has the tests run that reach it until one
// fails. Told is called with each result.
func Run(ctx context.Context, all []Mutant, tests []Test, atATime int, told func(Result)) []Result {
	results := make([]Result, len(all))
	var telling sync.Mutex
	parallel(len(all), atATime, func(i int) {
		results[i] = judge(ctx, all[i], tests)
		telling.Lock()
		defer telling.Unlock()
		told(results[i])
	})
	return results
}

// group is tests of one binary that are run in one process.
type group struct {
	binary Binary
	names  []string
	took   time.Duration
}

func judge(ctx context.Context, m Mutant, tests []Test) Result {
	groups := groupsOf(m, tests)
	if len(groups) == 0 {
		return Result{Mutant: m, Outcome: Unreached}
	}
	for _, g := range groups {
		limited, stop := context.WithTimeout(ctx, patience*g.took+leastPatience)
		_, err := g.binary.run(limited, g.names, fmt.Sprint("MUTANT=", m.ID))
		timeIsUp := limited.Err() != nil
		stop()
		by := strings.Join(g.names, ", ")
		if len(g.names) > 3 {
			by = fmt.Sprintf("%d quick tests of %s", len(g.names), g.binary.Package)
		}
		switch {
		case timeIsUp:
			return Result{m, Endless, by}
		case err != nil:
			return Result{m, Noticed, by}
		}
	}
	return Result{Mutant: m, Outcome: Survived}
}

// groupsOf are the tests that reach a mutant, those that take longest last.
func groupsOf(m Mutant, tests []Test) []group {
	together := map[string]*group{}
	var groups []*group
	for _, t := range tests {
		switch {
		case !t.Reaches[m.ID]:
		case t.Took > quick:
			groups = append(groups, &group{t.Binary, []string{t.Name}, t.Took})
		case together[t.Binary.Path] != nil:
			g := together[t.Binary.Path]
			g.names, g.took = append(g.names, t.Name), g.took+t.Took
		default:
			g := &group{t.Binary, []string{t.Name}, t.Took}
			together[t.Binary.Path] = g
			groups = append(groups, g)
		}
	}
	slices.SortStableFunc(groups, func(a, b *group) int { return int(a.took - b.took) })
	ordered := make([]group, len(groups))
	for i, g := range groups {
		ordered[i] = *g
	}
	return ordered
}

// parallel calls f with 0 to n-1, so many at a time.
func parallel(n, atATime int, f func(int)) {
	var calls errgroup.Group
	calls.SetLimit(max(atATime, 1))
	for i := range n {
		calls.Go(func() error {
			f(i)
			return nil
		})
	}
	_ = calls.Wait() // none of them fails
}
