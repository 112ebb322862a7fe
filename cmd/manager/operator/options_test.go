package operator

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// TestProvidersFlagsAreTaken has the flags that Cluster API's contract demands,
// and those that its providers have in common.
func TestProvidersFlagsAreTaken(t *testing.T) {
	var o Options
	flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	o.Bind(flags)
	err := flags.Parse([]string{
		"--namespace=team", "--watch-filter=blue", "--sync-period=15m",
		"--diagnostics-address=:1", "--insecure-diagnostics", "--tls-min-version=VersionTLS13", "--health-addr=:2",
		"--leader-elect=false", "--leader-elect-lease-duration=15s", "--leader-elect-renew-deadline=10s",
	})
	if err != nil {
		t.Fatal(err)
	}
	if o.WatchNamespace != "team" || o.WatchFilter != "blue" || o.SyncPeriod != 15*time.Minute {
		t.Errorf("what is watched: %q %q %v", o.WatchNamespace, o.WatchFilter, o.SyncPeriod)
	}
	if o.Manager.DiagnosticsAddress != ":1" || !o.Manager.InsecureDiagnostics || o.ProbeAddress != ":2" {
		t.Errorf("where it listens: %+v, %q", o.Manager, o.ProbeAddress)
	}
	if duration, renew, retry := o.lease(); duration != 15*time.Second || renew != 10*time.Second || retry != 15*time.Second/8 {
		t.Errorf("the lease: %v, %v, %v", duration, renew, retry)
	}
}

func TestOneFlagHasTwoNames(t *testing.T) {
	var o Options
	flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	o.Bind(flags)
	if err := flags.Parse([]string{"--metrics-bind-address=:1", "--health-probe-bind-address=:2"}); err != nil {
		t.Fatal(err)
	}
	if o.Manager.DiagnosticsAddress != ":1" || o.ProbeAddress != ":2" {
		t.Errorf("metrics at %q, probes at %q", o.Manager.DiagnosticsAddress, o.ProbeAddress)
	}
	if o.WatchNamespace != "" || !o.LeaderElect {
		t.Errorf("without flags it watches %q, and elects a leader: %t", o.WatchNamespace, o.LeaderElect)
	}
}
