// The manager runs Cadastre in a cluster: webhooks on every replica, controllers
// on the leader.
//
//	manager [flags]            runs until a signal stops it
//	manager remove-finalizers  refuses all new objects, and removes the operator's finalizers
//	                           from all objects, before the operator is removed
//	manager hub-provisioner    makes pools from ranges of another cluster, see docs/provisioners.md
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
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
	if err := start(pflag.CommandLine, os.Args[1:]); err != nil {
		klog.Background().Error(err, "the operator has stopped")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

// start reads the flags, including the flags of logging and of the client, and runs the command.
func start(flags *pflag.FlagSet, args []string) error {
	if len(args) > 0 && args[0] == hubCommand {
		return startHub(args[1:])
	}
	var options operator.Options
	logging := logs.NewOptions()
	bind(flags, &options, logging)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := options.Validate(); err != nil {
		return err
	}
	if err := logsv1.ValidateAndApply(logging, nil); err != nil {
		return err
	}
	ctrl.SetLogger(klog.Background())
	collectOften()
	return run(ctrl.SetupSignalHandler(), flags.Args(), options)
}

// bind registers all flags.
func bind(flags *pflag.FlagSet, options *operator.Options, logging *logsv1.LoggingConfiguration) {
	options.Bind(flags)
	logsv1.AddFlags(logging, flags)
	flags.AddGoFlagSet(flag.CommandLine)
}

// collectOften sets the garbage collector to run when the garbage is half as large as the memory
// in use, unless GOGC is set. The operator keeps its data for long, and throws away little for
// each claim: idle memory would cost more than the collections.
func collectOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

func run(ctx context.Context, args []string, options operator.Options) error {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	switch {
	case len(args) == 0:
		return operator.Run(ctx, cfg, options)
	case len(args) == 1 && args[0] == "remove-finalizers":
		return operator.RemoveFinalizers(ctx, cfg, options, os.Stdout)
	default:
		return fmt.Errorf("%q is not a command: use remove-finalizers or hub-provisioner", args)
	}
}
