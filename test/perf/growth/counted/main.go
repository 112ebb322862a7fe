// Command counted is the manager with counters in its code, one for each statement. It is built
// with -cover by the test beside it, and serves, on the loopback address in $COUNTERS:
//
//	/clear       sets all counters to zero
//	/write?DIR   writes them to a directory
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"runtime/coverage"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/cadastre-dev/cadastre/internal/operator"
)

func main() {
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "counted:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var options operator.Options
	options.Bind(pflag.CommandLine)
	pflag.CommandLine.AddGoFlagSet(flag.CommandLine)
	pflag.Parse()
	ctrl.SetLogger(logr.Discard())
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	serve(os.Getenv("COUNTERS"))
	return operator.Run(ctx, config, options)
}

// serve serves the counters for as long as the process lives.
func serve(address string) {
	mux := http.NewServeMux()
	mux.HandleFunc("/clear", func(w http.ResponseWriter, _ *http.Request) { answer(w, coverage.ClearCounters()) })
	mux.HandleFunc("/write", func(w http.ResponseWriter, r *http.Request) {
		dir := r.URL.RawQuery
		answer(w, errors.Join(coverage.WriteMetaDir(dir), coverage.WriteCountersDir(dir)))
	})
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() {
		if err := server.ListenAndServe(); err != nil {
			fmt.Fprintln(os.Stderr, "counted:", err)
		}
	}()
}

func answer(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
