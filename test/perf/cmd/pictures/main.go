// The pictures command makes the pictures of the dashboards:
//
//	pictures [--for=6m] record FILE     runs the operator and Prometheus, and writes what
//	                                    Prometheus answers to the queries of the dashboards
//	pictures draw FILE DIRECTORY        draws that as SVG
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/test/perf/picture"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	log.SetLogger(logr.Discard())
	length := flag.Duration("for", 6*time.Minute, "how long claims are made")
	flag.Parse()
	module, err := cluster.ModuleRoot()
	if err != nil {
		return err
	}
	o := picture.Options{Module: module, For: *length, Progress: os.Stdout}
	switch args := flag.Args(); {
	case len(args) == 2 && args[0] == "record":
		recorded, err := picture.Record(ctx, o)
		if err != nil {
			return err
		}
		text, err := json.Marshal(recorded)
		if err != nil {
			return err
		}
		return os.WriteFile(args[1], text, 0o644)
	case len(args) == 3 && args[0] == "draw":
		text, err := os.ReadFile(args[1])
		if err != nil {
			return err
		}
		return picture.Draw(o, text, args[2])
	}
	return errors.New("usage: pictures [--for=6m] record FILE | pictures draw FILE DIRECTORY")
}
