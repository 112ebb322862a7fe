package operator

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	fcache "k8s.io/client-go/tools/cache/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// TestRunReturnsErrorOfInvalidOption expects an error before the first call to the API server, which
// does not exist here.
func TestRunReturnsErrorOfInvalidOption(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		config rest.Config
		want   string
	}{
		"the authority of the API server":  {config: rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: "missing-ca"}}, want: "missing-ca: no such file"},
		"the issuer of the certificate":    {args: []string{"--webhook-cert-source=vault"}, want: `mode "vault" is neither`},
		"the version of TLS":               {args: []string{"--tls-min-version=VersionTLS99"}, want: "VersionTLS99"},
		"the authority of client requests": {args: []string{"--webhook-client-ca=missing-client-ca"}, want: "--webhook-client-ca: open missing-client-ca"},
		"the history file":                 {args: []string{"--history-file=/dev/null/history"}, want: "--history-file=/dev/null/history cannot be written"},
		"the collector of the history":     {args: []string{"--history-otlp-endpoint=collector"}, want: "--history-otlp-endpoint: "},
		"the collector of traces":          {args: []string{"--tracing-endpoint=collector"}, want: "is not the address of a collector"},
		"the address of probes":            {args: []string{"--health-addr=127.0.0.1:99999"}, want: "invalid port"},
		"an API server that cannot answer": {want: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			o := parseOptions(t, append([]string{"--diagnostics-address=0", "--health-addr=0"}, c.args...)...)
			o.SkipNameValidation = true
			c.config.Host = "https://127.0.0.1:1"
			if err := Run(t.Context(), &c.config, o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestConnectionsAreNamedAndNotThrottled(t *testing.T) {
	given := &rest.Config{Host: "https://127.0.0.1:1"}
	if cfg := connectionConfig(given); cfg.Host != given.Host || cfg.QPS >= 0 || cfg.WrapTransport == nil {
		t.Errorf("they are limited to %v requests a second, and writes are counted: %t", cfg.QPS, cfg.WrapTransport != nil)
	}
	if agent := connectionConfig(given).UserAgent; !strings.HasPrefix(agent, "cadastre-controller-manager/") {
		t.Errorf("managed fields would name the manager %q", agent)
	}
	if given.QPS != 0 || given.WrapTransport != nil {
		t.Error("the configuration of the caller is changed")
	}
}

func TestLeaseStatesLeaderVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3":                 "v1.2.3",
		"v1.2.3-0.2026+dirty":    "v1.2.3-0.2026_dirty",
		"(devel)":                "devel",
		strings.Repeat("v1", 40): "",
		"of two words":           "",
	} {
		lease := &resourcelock.LeaseLock{}
		label(lease, version)
		if got := lease.Labels[versionLabel]; got != want {
			t.Errorf("%q has the label %q, want %q", version, got, want)
		}
	}
}

func TestUnreadableClientCAStopsOperator(t *testing.T) {
	nothing := filepath.Join(t.TempDir(), "ca.crt")
	if _, err := clientAuthority(nothing); err == nil || !strings.Contains(err.Error(), "--webhook-client-ca") {
		t.Errorf("a file that is missing: %v", err)
	}
	if err := os.WriteFile(nothing, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := clientAuthority(nothing); err == nil || !strings.Contains(err.Error(), "has no PEM certificate") {
		t.Errorf("a file without certificate: %v", err)
	}
	change, err := clientAuthority("")
	if err != nil {
		t.Fatal(err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if change(c); c.ClientAuth != tls.NoClientCert || c.ClientCAs != nil {
		t.Error("without the flag clients need a certificate")
	}
}

func TestClientCADemandsCertificates(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.crt")
	suite.Must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	change, err := clientAuthority(file)
	suite.Must(t, err)
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if change(c); c.ClientAuth != tls.RequireAndVerifyClientCert || c.ClientCAs == nil {
		t.Errorf("clients are asked for certificates by %v, of the authorities %v", c.ClientAuth, c.ClientCAs)
	}
}

func TestInvalidHostIsReported(t *testing.T) {
	cfg, good := &rest.Config{Host: "https://a b:1"}, &rest.Config{Host: "https://127.0.0.1:1"}
	conn, err := connect(good)
	suite.Must(t, err)
	counted := newRollbacks(conn.scheme, logr.Discard())
	_, records := newRecordsFirst(cfg, conn, nil, counted)
	_, policies := newPolicyWatch(cfg, conn.http, manifests.Account{}, counted)
	for name, err := range map[string]error{"the sources of records": records, "the watch of policies": policies} {
		if err == nil || !strings.Contains(err.Error(), "a b") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// brittleManager implements a manager that reaches no API server. After some calls one fails.
type brittleManager struct {
	ctrl.Manager
	informers informertest.FakeInformers
	// succeeding is the number of calls after which one fails.
	succeeding int
	start      func(context.Context) error
}

func (m *brittleManager) call() error {
	if m.succeeding--; m.succeeding == -1 {
		return errBroken
	}
	return nil
}

func (m *brittleManager) Add(manager.Runnable) error                    { return m.call() }
func (m *brittleManager) AddHealthzCheck(string, healthz.Checker) error { return m.call() }
func (m *brittleManager) AddReadyzCheck(string, healthz.Checker) error  { return m.call() }
func (m *brittleManager) GetCache() cache.Cache                         { return brittleCache{&m.informers, m} }
func (m *brittleManager) Start(ctx context.Context) error               { return m.start(ctx) }

type brittleCache struct {
	*informertest.FakeInformers
	manager *brittleManager
}

func (c brittleCache) GetInformer(ctx context.Context, obj client.Object, options ...cache.InformerGetOption) (cache.Informer, error) {
	if err := c.manager.call(); err != nil {
		return nil, err
	}
	return c.FakeInformers.GetInformer(ctx, obj, options...)
}

// newTestOperator returns an operator without an API server.
func newTestOperator(t *testing.T, args ...string) (*operator, *brittleManager) {
	t.Helper()
	o, cfg := parseOptions(t, append(args, "--health-addr=0", "--diagnostics-address=0", "--history-log=false")...), &rest.Config{Host: "https://127.0.0.1:1"}
	o.SkipNameValidation, o.Log, o.Metrics = true, logr.Discard(), prometheus.NewRegistry()
	conn, err := connect(cfg)
	suite.Must(t, err)
	guard, err := newGuard(conn.client, o, nil, newRollbacks(conn.scheme, logr.Discard()))
	suite.Must(t, err)
	managed, err := managerOptions(cfg, o, conn, &recordsFirst{}, guard)
	suite.Must(t, err)
	managed.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
		return testrestmapper.TestOnlyStaticRESTMapper(conn.scheme), nil
	}
	mgr, err := ctrl.NewManager(cfg, managed)
	suite.Must(t, err)
	op, err := newOperator(t.Context(), o, ledger.New(ledger.Options{Clock: clock.RealClock{}, Silence: time.Minute}), conn.client, nil)
	suite.Must(t, err)
	scheme, err := cluster.Scheme()
	suite.Must(t, errors.Join(err, metav1.AddMetaToScheme(scheme)))
	m := &brittleManager{Manager: mgr, informers: informertest.FakeInformers{Scheme: scheme}, succeeding: 1000}
	op.manager, op.guard, op.records = m, guard, fcache.NewFakeControllerSource()
	op.measures = newMeasures(op, &policyWatch{}, newRollbacks(scheme, logr.Discard()))
	op.measures.notAfter, op.measures.replacements = guard.certificate.NotAfter, guard.paths.Replacements
	return op, m
}

// TestRegistrationReportsFirstFailure makes each call of the manager and its cache fail, one at a time.
func TestRegistrationReportsFirstFailure(t *testing.T) {
	for n := range 100 {
		op, m := newTestOperator(t)
		m.succeeding = n
		err := op.register(t.Context())
		if m.succeeding >= 0 {
			suite.Must(t, err)
			return
		}
		if !errors.Is(err, errBroken) {
			t.Errorf("call %d fails, and the registration returns %v", n, err)
		}
	}
	t.Error("it never succeeds")
}

func TestOperatorIsNotReadyBeforeItHasListed(t *testing.T) {
	op, _ := newTestOperator(t)
	suite.Must(t, op.register(t.Context()))
	for name, check := range op.checks() {
		if check(nil) == nil {
			t.Errorf("the check %s passes", name)
		}
	}
	op.options.Ready = func() { t.Error("it reports that it is ready") }
	ended, end := context.WithCancel(t.Context())
	end()
	op.notifyReady(ended) // checks once
}

func TestOperatorReportsWhyItDoesNotRun(t *testing.T) {
	for name, c := range map[string]struct {
		isTaken bool
		start   error
		want    string
	}{
		"its metrics are registered already": {isTaken: true, want: "registering metrics: "},
		"its manager does not start":         {start: errBroken, want: "broken"},
		"it ends":                            {},
	} {
		t.Run(name, func(t *testing.T) {
			op, m := newTestOperator(t)
			op.options.Metrics = nil
			if c.isTaken {
				suite.Must(t, ctrlmetrics.Registry.Register(op.measures))
			}
			m.start = func(context.Context) error {
				if n, err := testutil.GatherAndCount(ctrlmetrics.Registry, metrics.Build); n != 1 || err != nil {
					t.Errorf("a running operator exports its version %d times, %v", n, err)
				}
				return c.start
			}
			err := op.run(t.Context())
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if ctrlmetrics.Registry.Unregister(op.measures) != c.isTaken {
				t.Error("it keeps its metrics, or removes metrics of others")
			}
			unregister, err := op.measures.register(ctrlmetrics.Registry)
			suite.Must(t, err) // unless other metrics are left
			unregister()
		})
	}
}
