package operator

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
)

// parseOptions returns the options of a command line.
func parseOptions(t *testing.T, args ...string) Options {
	t.Helper()
	var o Options
	flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	o.Bind(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestProviderFlagsAreAccepted sets the flags that Cluster API's contract demands, and those that its
// providers have in common.
func TestProviderFlagsAreAccepted(t *testing.T) {
	o := parseOptions(t,
		"--namespace=team", "--watch-filter=blue", "--sync-period=15m",
		"--diagnostics-address=:1", "--insecure-diagnostics", "--tls-min-version=VersionTLS13", "--health-addr=:2",
		"--leader-elect=false", "--leader-elect-lease-duration=15s", "--leader-elect-renew-deadline=10s",
	)
	if o.WatchNamespace != "team" || o.WatchFilter != "blue" || o.SyncPeriod != 15*time.Minute {
		t.Errorf("the watched namespace, filter and period: %q %q %v", o.WatchNamespace, o.WatchFilter, o.SyncPeriod)
	}
	if o.Manager.DiagnosticsAddress != ":1" || !o.Manager.InsecureDiagnostics || o.ProbeAddress != ":2" {
		t.Errorf("where it listens: %+v, %q", o.Manager, o.ProbeAddress)
	}
	if duration, renew, retry := o.lease(); duration != 15*time.Second || renew != 10*time.Second || retry != 15*time.Second/8 {
		t.Errorf("the lease: %v, %v, %v", duration, renew, retry)
	}
}

func TestFlagsSetOptions(t *testing.T) {
	o := parseOptions(t,
		"--platform-project=infra", "--unclaimed-limit=7", "--waiting-limit=6", "--workers=5", "--leader-elect-retry-period=4s",
		"--history-file-maxsize=3", "--history-file-maxbackup=2", "--history-file-maxage=1", "--history-otlp-endpoint=http://collector:4317",
	)
	if o.PlatformProject != "infra" || o.UnclaimedLimit != 7 || o.WaitingLimit != 6 || o.Workers != 5 {
		t.Errorf("the project is %q, the limits %d and %d, the workers %d", o.PlatformProject, o.UnclaimedLimit, o.WaitingLimit, o.Workers)
	}
	if _, _, retry := o.lease(); retry != 4*time.Second {
		t.Errorf("the lease is retried each %s", retry)
	}
	if f := o.History.File; f.MaxSize != 3 || f.MaxBackups != 2 || f.MaxAge != 1 || o.History.Endpoint != "http://collector:4317" {
		t.Errorf("the history goes to %+v and %q", f, o.History.Endpoint)
	}
}

func TestHistoryGoesToEachDestination(t *testing.T) {
	for want, args := range map[string][]string{
		"log":           nil,
		"":              {"--history-log=false"},
		"file log otlp": {"--history-file=" + filepath.Join(t.TempDir(), "history"), "--history-otlp-endpoint=http://127.0.0.1:1"},
	} {
		o := parseOptions(t, args...)
		o.Log = logr.Discard()
		sinks, err := o.sinks(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(slices.Sorted(maps.Keys(sinks)), " "); got != want {
			t.Errorf("with %q the history goes to %q, want %q", args, got, want)
		}
		for _, sink := range sinks {
			if err := sink.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestFlagAliasesSetSameOption(t *testing.T) {
	o := parseOptions(t, "--metrics-bind-address=:1", "--health-probe-bind-address=:2")
	if o.Manager.DiagnosticsAddress != ":1" || o.ProbeAddress != ":2" {
		t.Errorf("metrics at %q, probes at %q", o.Manager.DiagnosticsAddress, o.ProbeAddress)
	}
	if o.WatchNamespace != "" || !o.LeaderElect {
		t.Errorf("without flags it watches %q, and elects a leader: %t", o.WatchNamespace, o.LeaderElect)
	}
}

func TestInvalidFlagsAreRefusedAtStart(t *testing.T) {
	const forAll = "--in-cluster-pools is for all namespaces and labels, as IPAddresses that are not reconciled would be handed out again: leave out --namespace and --watch-filter"
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"the defaults":                    {nil, ""},
		"the shortest grace that is safe": {[]string{"--orphan-grace=65s"}, ""},
		"a shorter grace": {[]string{"--orphan-grace=64s"},
			"--orphan-grace=1m4s is shorter than a request to create a claim can last: set 1m5s or more"},
		"in-cluster pools without the gate": {[]string{"--in-cluster-pools"}, "--in-cluster-pools needs pools that occupy their ranges: set --feature-gates=PoolRanges=true, too, when no replica of an older version is left"},
		"in-cluster pools":                  {[]string{"--in-cluster-pools", "--feature-gates=PoolRanges=true"}, ""},
		"in-cluster pools of one namespace": {[]string{"--in-cluster-pools", "--feature-gates=PoolRanges=true", "--namespace=team"}, forAll},
		"in-cluster pools of one label":     {[]string{"--in-cluster-pools", "--feature-gates=PoolRanges=true", "--watch-filter=blue"}, forAll},
		"no grace at all":                   {[]string{"--orphan-grace=0"}, "--orphan-grace=0s is shorter than a request to create a claim can last: set 1m5s or more"},
		"the other family":                  {[]string{"--default-ip-family=IPv6"}, ""},
		"a collector":                       {[]string{"--tracing-endpoint=https://collector:4317", "--tracing-sampling-rate-per-million=1000000"}, ""},
		"a collector without scheme": {[]string{"--tracing-endpoint=collector:4317"},
			`--tracing-endpoint="collector:4317" is not the address of a collector: set one such as https://collector.example.com:4317, or http:// for a connection without TLS`},
		"more than all traces":                 {[]string{"--tracing-sampling-rate-per-million=1000001"}, "--tracing-sampling-rate-per-million=1000001 is out of range: set 0 to 1000000"},
		"less than none":                       {[]string{"--tracing-sampling-rate-per-million=-1"}, "--tracing-sampling-rate-per-million=-1 is out of range: set 0 to 1000000"},
		"a history file of negative size":      {[]string{"--history-file-maxsize=-1"}, "--history-file-maxsize=-1 is negative: set 0 or more"},
		"a family that there is not":           {[]string{"--default-ip-family=ipv4"}, "--default-ip-family=ipv4 is no address family: set IPv4 or IPv6"},
		"a family that is none, and all right": {[]string{"--default-ip-family="}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := parseOptions(t, c.args...)
			got := ""
			if err := o.Validate(); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestOptionsWithoutFlagsHaveDefaultFeatures uses options that no flags were bound to.
func TestOptionsWithoutFlagsHaveDefaultFeatures(t *testing.T) {
	if got, want := (&Options{}).isEnabled(PoolRanges), newFeatures().Enabled(PoolRanges); got != want {
		t.Errorf("PoolRanges is on: %t, want %t", got, want)
	}
}
