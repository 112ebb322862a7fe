// Command mutants changes the code in small ways, and lists the changes that no test notices:
//
//	mutants [flags] PACKAGE...     judges the packages' mutants, into out/mutants.json
//	mutants table REPORT EXPLAINED the figures of a report and the survivors, as Markdown
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cadastre-dev/cadastre/hack/mutants"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(args) == 3 && args[0] == "table" {
		return table(args[1], args[2])
	}
	var o options
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.StringVar(&o.out, "out", "out/mutants.json", "The report.")
	flags.StringVar(&o.explained, "explained", "hack/mutants/explained.txt", "Why mutants survive that no test notices.")
	flags.IntVar(&o.sample, "sample", 0, "How many mutants are drawn by -seed. 0: all.")
	flags.Uint64Var(&o.seed, "seed", 0, "0: any.")
	flags.StringVar(&o.only, "only", "", "A regular expression: only mutants of which File, function or change matches it.")
	flags.BoolVar(&o.list, "list", false, "List the mutants, and run nothing.")
	flags.StringVar(&o.survivorsOf, "survivors-of", "", "A report: only mutants that no test noticed there.")
	flags.IntVar(&o.atATime, "at-a-time", 2*runtime.NumCPU(), "How many mutants are run at a time: tests of controllers wait as long as they work.")
	flags.BoolVar(&o.controlPlanes, "control-planes", false, "Start a control plane for each of those, which the tests of controllers use.")
	flags.StringVar(&o.tests, "tests", "", "Packages, separated by commas, whose tests judge too, and of which nothing is changed.")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.packages = flags.Args(); len(o.packages) == 0 {
		return errors.New("name packages, such as ./internal/ledger")
	}
	return o.judge(ctx)
}

type options struct {
	out, explained, only string
	survivorsOf, tests   string
	sample               int
	seed                 uint64
	atATime              int
	list, controlPlanes  bool
	packages             []string
}

func (o *options) judge(ctx context.Context) error {
	why, err := mutants.ReadExplanations(o.explained)
	if err != nil {
		return err
	}
	const leftAlone = "github.com/go-logr/logr" // writes messages for people
	code, err := mutants.Instrument(".", []string{leftAlone}, o.packages...)
	if err != nil {
		return err
	}
	report, err := o.report(ctx, code.Mutants)
	if err != nil {
		return err
	}
	chosen, err := o.chosen(code.Mutants)
	if err != nil {
		return err
	}
	for i, m := range chosen {
		chosen[i].IsExplained = why[m.Key()] != ""
	}
	if report.Chosen = len(chosen); o.list {
		for _, m := range chosen {
			fmt.Println(m)
		}
		return nil
	}
	if err := o.run(ctx, code, report, report.Left(chosen)); err != nil {
		return err
	}
	return conclude(report, code.Mutants, why)
}

// report returns the report of a run that was cut off if this run continues it, or else a report
// without results.
func (o *options) report(ctx context.Context, selection []mutants.Mutant) (*mutants.Report, error) {
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return nil, fmt.Errorf("asking for the commit: %w", err)
	}
	report := &mutants.Report{Commit: strings.TrimSpace(string(commit)), Of: len(selection), Seed: o.seed}
	if report.Chosen = len(selection); o.sample > 0 {
		report.Chosen = min(o.sample, len(selection))
	}
	if before, err := mutants.ReadReport(o.out); err == nil && report.Continues(before) {
		fmt.Printf("mutants: going on with the run of which %s has %d results\n", o.out, len(report.Results))
	} else if report.Seed == 0 {
		report.Seed = rand.Uint64()
	}
	o.seed = report.Seed
	return report, os.MkdirAll(filepath.Dir(o.out), 0o755)
}

// chosen returns the mutants that are judged.
func (o *options) chosen(all []mutants.Mutant) ([]mutants.Mutant, error) {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return nil, err
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(m mutants.Mutant) bool { return !only.MatchString(m.String()) })
	if o.survivorsOf != "" {
		before, err := mutants.ReadReport(o.survivorsOf)
		if err != nil {
			return nil, err
		}
		survived := map[string]bool{}
		for _, survivor := range before.Survivors() {
			survived[survivor.Key()] = true
		}
		chosen = slices.DeleteFunc(chosen, func(m mutants.Mutant) bool { return !survived[m.Key()] })
	}
	if o.sample == 0 || o.sample >= len(chosen) {
		return chosen, nil
	}
	if o.seed == 0 {
		o.seed = rand.Uint64()
	}
	random := rand.New(rand.NewPCG(o.seed, 0))
	random.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	return chosen[:o.sample], nil
}

// judges returns the packages whose tests run.
func (o *options) judges() []string {
	if o.tests == "" {
		return o.packages
	}
	return slices.Concat(o.packages, strings.Split(o.tests, ","))
}

// every is the number of results after which the report is written. If the run is cut off, the
// next one continues from that report.
const every = 20

// run judges mutants, and adds the results to the report.
func (o *options) run(ctx context.Context, code *mutants.Instrumented, report *mutants.Report, left []mutants.Mutant) (err error) {
	scratch, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Printf("mutants: %4.0f s: %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	say("%d of %d mutants are judged; building the tests", len(left), len(code.Mutants))
	binaries, err := code.Build(ctx, ".", scratch, o.judges()...)
	if err != nil {
		return err
	}
	places, stop, err := o.places(ctx)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	say("running each test of %d packages alone, without mutants", len(binaries))
	tests, err := mutants.Measure(ctx, binaries, scratch, places)
	if err != nil {
		return err
	}
	say("running %d mutants", len(left))
	done := 0
	mutants.Run(ctx, left, tests, places, func(r mutants.Result) {
		report.Results = append(report.Results, r)
		if done++; done%every == 0 {
			err = errors.Join(err, report.Write(o.out))
			say("%d of %d", done, len(left))
		}
		if r.Outcome == mutants.Survived || r.Outcome == mutants.Unreached {
			fmt.Printf("%s: %s\n", r.Outcome, r.Mutant)
		}
	})
	say("%d of %d are judged", done, len(left))
	return errors.Join(err, report.Write(o.out), ctx.Err())
}

// places returns the places in which tests run. Each has a control plane if the options ask for
// control planes. stop ends the control planes.
func (o *options) places(ctx context.Context) (places mutants.Places, stop func() error, err error) {
	var planes []*cluster.Cluster
	stop = func() (err error) {
		for _, plane := range planes {
			err = errors.Join(err, plane.Stop())
		}
		return err
	}
	environments := make([][]string, o.atATime)
	for i := range environments {
		if !o.controlPlanes {
			continue
		}
		plane, err := cluster.Start(ctx, cluster.Options{ClusterAPICRDs: true, Progress: io.Discard})
		if err != nil {
			return nil, stop, err
		}
		planes = append(planes, plane)
		if err := plane.Install(ctx, "config/in-cluster-pools"); err != nil { // as story.Start does
			return nil, stop, err
		}
		if err := plane.AwaitKinds(ctx); err != nil {
			return nil, stop, err
		}
		environments[i] = []string{story.Kubeconfig + "=" + plane.Kubeconfig()}
	}
	return mutants.NewPlaces(environments...), stop, nil
}

// conclude prints the figures, and fails if a survivor is not explained.
func conclude(report *mutants.Report, all []mutants.Mutant, why mutants.Explanations) error {
	if err := report.Table(os.Stdout, why); err != nil {
		return err
	}
	open := 0
	for _, survivor := range report.Survivors() {
		if why[survivor.Key()] == "" {
			open++
		}
	}
	for _, key := range report.Stale(all, why) {
		fmt.Println("explained, though it is noticed or not there:", key)
	}
	if open > 0 {
		return fmt.Errorf("%d survivors are not explained", open)
	}
	return nil
}

func table(file, explained string) error {
	report, err := mutants.ReadReport(file)
	if err != nil {
		return err
	}
	why, err := mutants.ReadExplanations(explained)
	if err != nil {
		return err
	}
	if err := report.Table(os.Stdout, why); err != nil {
		return err
	}
	fmt.Print("\nMutants that survive:\n\n")
	return report.List(os.Stdout, why)
}
