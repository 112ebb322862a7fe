// Torture runs the torture harness, for `make torture`, and prints its figures, for
// `make torture-report`.
//
//	torture [flags]           runs
//	torture report REPORT     prints the figures of a run
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/test/chaos/torture"
)

func main() {
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard()) // client-go reports every call that is cut off
	config := torture.Config{Progress: os.Stdout}
	flag.DurationVar(&config.Storm, "duration", 10*time.Minute, "For how long faults are injected.")
	flag.IntVar(&config.Allocations, "allocations", 0, "After how many allocations, and -faults, no more faults are injected. Both 0: only when the time is over.")
	flag.IntVar(&config.Faults, "faults", 0, "After how many faults, and -allocations, no more are injected.")
	flag.Uint64Var(&config.Seed, "seed", 0, "Seed of all choices. 0: any.")
	flag.IntVar(&config.Clients, "clients", 0, "How many clients work at the same time. 0: as many as suit.")
	flag.IntVar(&config.Managers, "managers", 0, "How many replicas run. 0: three.")
	flag.DurationVar(&config.Pause, "pause", 0, "How long there is nothing between two faults, on average. 0: a second.")
	flag.StringVar(&config.Out, "out", "out/torture", "Directory for the report, and for the explanation of a violation.")
	flag.StringVar(&config.Dir, "dir", "", "Directory that keeps the cluster's files and logs. Empty: a temporary one.")
	flag.StringVar(&config.Binary, "manager", "", "The manager. Empty: bin/test-manager.")
	flag.Func("env", "NAME=VALUE for the managers.", func(v string) error {
		config.Env = append(config.Env, v)
		return nil
	})
	flag.Parse()
	if flag.Arg(0) == "report" && flag.NArg() == 2 {
		report, err := torture.ReadReport(flag.Arg(1))
		if err != nil {
			fmt.Fprintln(os.Stderr, "torture:", err)
			os.Exit(2)
		}
		fmt.Print(report.Markdown())
		return
	}
	if config.Seed == 0 {
		config.Seed = rand.Uint64N(1 << 32)
	}
	os.Exit(run(config))
}

func run(config torture.Config) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	report, err := torture.Run(ctx, config)
	if report != nil && len(report.Violations) > 0 {
		fmt.Println(report.Explanation())
		return 1
	}
	if err != nil && !errors.Is(err, torture.ErrViolated) {
		fmt.Fprintln(os.Stderr, "torture:", err)
		return 2
	}
	fmt.Printf("torture: no violation in %d allocations and %d faults (seed %d)\n", report.Figures.Allocations, report.Faults, config.Seed)
	return 0
}
