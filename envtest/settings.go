package envtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cadastre-dev/cadastre/internal/operator"
)

const (
	// namespace and account are the operator's own. The manifests name them.
	namespace = "cadastre-system"
	account   = "cadastre-controller-manager"
	// service is the name by which the API server calls the webhooks.
	service = "cadastre-webhook-service"
	// loopback is where they are served.
	loopback = "127.0.0.1"
)

// reserved are the flags that Start sets: those of these names, and those that begin so.
func reserved(flag string) bool {
	return slices.Contains([]string{"operator-namespace", "service-account", "health-addr", "diagnostics-address", "insecure-diagnostics"}, flag) ||
		strings.HasPrefix(flag, "webhook-") || strings.HasPrefix(flag, "leader-elect")
}

// settings are the options of the operator, but for the port of its webhooks.
func (o Options) settings() (operator.Options, error) {
	var settings operator.Options
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.Usage = func() {} // the error says enough
	settings.Bind(flags)
	if err := flags.Parse(o.Flags); err != nil {
		return settings, fmt.Errorf("Options.Flags: %w", err)
	}
	if flags.NArg() > 0 {
		return settings, fmt.Errorf("Options.Flags: %q is no flag: write --name=value", flags.Arg(0))
	}
	var err error
	flags.Visit(func(f *pflag.Flag) {
		if reserved(f.Name) {
			err = fmt.Errorf("Options.Flags: --%s is set by Start itself: leave it out", f.Name)
		}
	})
	settings.Namespace, settings.ServiceAccount = namespace, account
	settings.LeaderElect = false
	settings.ProbeAddress, settings.Manager.DiagnosticsAddress = "0", "0"
	settings.WebhookHost, settings.WebhookService = loopback, service
	settings.SkipNameValidation = true
	settings.Log = o.Log
	return settings, err
}
