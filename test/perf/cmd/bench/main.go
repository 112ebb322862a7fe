// Command bench measures Cadastre on this machine: a control plane, the operator
// and the clients, side by side with plain creates and with Services.
// `make bench` calls it.
//
//	bench [--quick] [--only=rates,fill] [--out=out]
//	bench --document=out/bench.json    writes its part of docs/benchmarks.md
//
// It writes bench.json into --out, and prints a table. The module test/perf/plots draws the curves.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/test/perf/bench/document"
	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
	"github.com/cadastre-dev/cadastre/test/perf/bench/play"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	log.SetLogger(logr.Discard())
	quick := flag.Bool("quick", false, "take fewer and smaller measurements")
	only := flag.String("only", "", "scenarios to run, with commas between; default: all")
	out := flag.String("out", "out", "directory for bench.json, and for the profiles of causes")
	dir := flag.String("dir", "", "directory for the files of the cluster, its logs among them; default: a temporary one")
	managerArgs := flag.String("manager-args", "", "flags for the managers, with commas between")
	from := flag.String("document", "", "bench.json of an earlier run, to write the document from")
	flag.Parse()
	if *from != "" {
		return write(*from)
	}
	report := &figures.Report{Command: command(*quick, *only), Quick: *quick, Begun: time.Now().UTC().Truncate(time.Second)}
	options := play.Options{Quick: *quick, Only: list(*only), Profiles: filepath.Join(*out, "profiles"), Dir: *dir, ManagerArgs: list(*managerArgs), Progress: os.Stdout}
	err := measure(ctx, options, report)
	if err != nil { // half an hour of figures is not lost by that
		report.Note("the run ended early: " + err.Error())
	}
	report.Seconds = time.Since(report.Begun).Round(time.Second).Seconds()
	err = errors.Join(err, save(report, *out))
	fmt.Printf("\n%s", document.Targets(report))
	return err
}

func measure(ctx context.Context, options play.Options, report *figures.Report) error {
	world, err := play.Start(ctx, options, report)
	if err != nil {
		return err
	}
	err = world.Run(ctx)
	fmt.Println("stopping")
	if stop := world.Stop(); err == nil {
		err = stop
	}
	return err
}

// save writes the figures.
func save(report *figures.Report, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := report.Save(filepath.Join(dir, "bench.json")); err != nil {
		return err
	}
	for name, text := range map[string]string{"observed.md": document.Observed(report), "causes.md": document.Causes(report), "reads.md": document.Reads(report), "cores.md": document.Cores(report)} {
		if text == "" {
			continue
		}
		fmt.Printf("\n%s", text)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("\nwritten: %s, after %.0f s\n", filepath.Join(dir, "bench.json"), report.Seconds)
	return nil
}

func write(from string) error {
	report, err := figures.Load(from)
	if err != nil {
		return err
	}
	_, err = os.Stdout.WriteString(document.Markdown(report))
	return err
}

// command returns the command that measures the same.
func command(quick bool, only string) string {
	typed := "make bench"
	if quick {
		typed += " QUICK=1"
	}
	if only != "" {
		typed += " ONLY=" + only
	}
	return typed
}

func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
