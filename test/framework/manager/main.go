// The manager runs the operator as cmd/manager does, but with any --orphan-grace. It is for suites
// that wait until the grace period of a record ends.
package main

import (
	"flag"
	"runtime/debug"

	"github.com/spf13/pflag"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/cadastre-dev/cadastre/internal/operator"
)

func main() {
	if err := run(); err != nil {
		klog.Background().Error(err, "the operator has stopped")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

func run() error {
	var options operator.Options
	logging := logs.NewOptions()
	flags := pflag.CommandLine
	options.Bind(flags)
	logsv1.AddFlags(logging, flags)
	flags.AddGoFlagSet(flag.CommandLine)
	pflag.Parse()
	if err := logsv1.ValidateAndApply(logging, nil); err != nil {
		return err
	}
	ctrl.SetLogger(klog.Background())
	debug.SetGCPercent(50) // as cmd/manager does
	return operator.Run(ctrl.SetupSignalHandler(), ctrl.GetConfigOrDie(), options)
}
