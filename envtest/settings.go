package envtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cadastre-dev/cadastre/internal/operator"
)

const (
	// namespace and account are the operator's namespace and service account. The manifests name
	// them.
	namespace = "cadastre-system"
	account   = "cadastre-controller-manager"
	// service is the name by which the API server calls the webhooks.
	service = "cadastre-webhook-service"
	// loopback is the address at which the webhooks are served.
	loopback = "127.0.0.1"
)

// reserved reports whether Start sets a flag: a flag of these names, or with these prefixes.
func reserved(flag string) bool {
	return slices.Contains([]string{"operator-namespace", "service-account", "health-addr", "diagnostics-address", "insecure-diagnostics"}, flag) ||
		strings.HasPrefix(flag, "webhook-") || strings.HasPrefix(flag, "leader-elect")
}

// settings returns the options of the operator, except the port of its webhooks.
func (o Options) settings() (operator.Options, error) {
	var settings operator.Options
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.Usage = func() {} // the error is enough
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
