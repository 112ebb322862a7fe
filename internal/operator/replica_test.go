package operator

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing/export"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/collector"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// processLog holds the log of controller-runtime.
var processLog logLines

// TestMain sets the log first: controller-runtime takes only one, and none later than 30 s.
func TestMain(m *testing.M) {
	ctrl.SetLogger(funcr.New(processLog.add, funcr.Options{}))
	os.Exit(m.Run())
}

// running holds an operator that runs in this process, on its own control plane.
type running struct {
	*suite.World
	options  Options
	registry *prometheus.Registry
	history  string
	ready    chan struct{}
	stop     context.CancelFunc
	ended    chan error
	spans    *collector.Collector
}

// logLines holds the lines of a log.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (c *logLines) add(prefix, line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, prefix+" "+line)
}

// contains reports whether a line contains all of these texts.
func (c *logLines) contains(texts ...string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.lines, func(line string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) })
	})
}

// startReplica runs an operator with its own account, as its Deployment does.
func startReplica(t *testing.T) *running {
	t.Helper()
	webhooks, probes := freeAddress(t), freeAddress(t)
	r := &running{
		World: suite.Start(t, cluster.Options{
			ClusterAPICRDs: true, Webhooks: []string{webhooks}, Manifests: filepath.Join(suite.ModuleRoot(t), "config", "overlays", "in-cluster-pools"),
		}),
		registry: prometheus.NewRegistry(), history: filepath.Join(t.TempDir(), "history"),
		ready: make(chan struct{}), ended: make(chan error, 1),
	}
	_, port, err := net.SplitHostPort(webhooks)
	suite.Must(t, err)
	r.options = parseOptions(t, "--health-addr="+probes, "--diagnostics-address=0", "--webhook-bind-host=127.0.0.1", "--webhook-port="+port,
		"--history-file="+r.history, "--in-cluster-pools", "--in-cluster-provider-namespace=provider", "--feature-gates=PoolRanges=true")
	r.spans, err = collector.Start(false)
	suite.Must(t, err)
	t.Cleanup(r.spans.Stop)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000") // in ms: spans are sent at the end
	r.options.TracingEndpoint, r.options.TracingSamplingRate = "http://"+r.spans.Address, export.PerMillion
	r.options.Metrics, r.options.Ready = r.registry, func() { close(r.ready) }
	config, err := r.OperatorConfig(t.Context())
	suite.Must(t, err)
	life, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() { r.ended <- Run(life, config, r.options) }()
	t.Cleanup(stop)
	select {
	case <-r.ready:
	case err := <-r.ended:
		t.Fatalf("it ends before it is ready: %v", err)
	case <-time.After(r.Patience):
		t.Fatal("it is not ready")
	}
	return r
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	suite.Must(t, err)
	suite.Must(t, listener.Close())
	return listener.Addr().String()
}

func TestReplica(t *testing.T) {
	r := startReplica(t)
	r.Namespace("team")
	r.Pools(build.Pool("p").CIDR("10.0.0.0/29").Obj(), build.Pool("single").CIDR("10.1.0.0/32").Obj())
	perTest := func(t *testing.T) *running {
		clone := *r
		clone.World = r.For(t)
		return &clone
	}
	suite.Steps(t, perTest,
		suite.Step[*running]{Name: "answers probes", Run: (*running).answersProbes},
		suite.Step[*running]{Name: "stores two Secrets", Run: (*running).storesSecrets},
		suite.Step[*running]{Name: "serves both kinds of claims", Run: (*running).serves},
		suite.Step[*running]{Name: "serves a claim that waited", Run: (*running).servesWaiting},
		suite.Step[*running]{Name: "leaves a pool to the in-cluster provider", Run: (*running).yieldsToProvider},
		suite.Step[*running]{Name: "exports its metrics", Run: (*running).exports},
		suite.Step[*running]{Name: "has its registry alone", Run: (*running).isAlone},
		suite.Step[*running]{Name: "leads under its version", Run: (*running).leads},
		suite.Step[*running]{Name: "ends in order", Run: (*running).ends},
		suite.Step[*running]{Name: "removes its finalizers", Run: (*running).removesFinalizers},
	)
}

func (r *running) answersProbes() {
	for _, path := range []string{"/healthz", "/healthz/ping", "/readyz", "/readyz/certificate", "/readyz/paths", "/readyz/register", "/readyz/webhooks"} {
		response, err := http.Get("http://" + r.options.ProbeAddress + path)
		suite.Must(r, err)
		text, err := io.ReadAll(response.Body)
		suite.Must(r, err)
		suite.Must(r, response.Body.Close())
		if response.StatusCode != http.StatusOK {
			r.Errorf("%s answers %d %s", path, response.StatusCode, text)
		}
	}
}

func (r *running) storesSecrets() {
	for name, key := range map[string]string{certificateSecret: corev1.TLSCertKey, pathSecret: "current"} {
		secret := &corev1.Secret{}
		suite.Must(r, r.Get(r.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: name}, secret))
		if len(secret.Data[key]) == 0 {
			r.Errorf("the Secret %s has no %s", name, key)
		}
	}
}

// serves expects an IPClaim to be served in the answer to its create, an IPAddressClaim by the
// controllers, and both in the history.
func (r *running) serves() {
	claim, address := build.Claim("team", "claim").Pool("p").Length(32).Obj(), build.AddressClaim("team", "address").Pool("p").Obj()
	r.Created(claim, address)
	if claim.Status.AllocatedCIDR != "10.0.0.0/32" {
		r.Errorf("the create call answers %+v", claim.Status)
	}
	r.Await("the IPAddressClaim is served", func(ctx context.Context) bool {
		return r.Get(ctx, client.ObjectKeyFromObject(address), address) == nil && address.Status.AddressRef.Name != ""
	})
	writtenByOperator := func(fields metav1.ManagedFieldsEntry) bool { return fields.Manager == "cadastre-controller-manager" }
	if !slices.ContainsFunc(address.ManagedFields, writtenByOperator) {
		r.Errorf("the IPAddressClaim was written by %+v", address.ManagedFields)
	}
	host, err := os.Hostname()
	suite.Must(r, err)
	r.Await("the history has both", func(context.Context) bool {
		text, _ := os.ReadFile(r.history)
		return bytes.Contains(text, []byte(`"10.0.0.0/32"`)) && bytes.Contains(text, []byte(`"10.0.0.1/32"`)) && bytes.Contains(text, []byte(`"replica":"`+host+`"`))
	})
	r.Await("the log has both", func(context.Context) bool {
		return processLog.contains("history ", "10.0.0.0/32") && processLog.contains("history ", "10.0.0.1/32")
	})
	r.Await("the log states that all claims are known", func(context.Context) bool { return processLog.contains("All allocations and claims have been seen") })
}

func (r *running) servesWaiting() {
	first, waits := build.Claim("team", "first").Pool("single").Length(32).Obj(), build.Claim("team", "waits").Pool("single").Length(32).Obj()
	r.Created(first, waits)
	r.Deleted(first)
	r.Bound(waits)
}

// yieldsToProvider lets the in-cluster provider start while its pools are served.
func (r *running) yieldsToProvider() {
	pool := build.InClusterPool("team", "machines", 24, "10.2.0.0/29")
	isFor := func(reason string) func(context.Context) bool {
		return func(ctx context.Context) bool {
			err := r.Get(ctx, client.ObjectKeyFromObject(pool), pool)
			ready := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionReady)
			return err == nil && ready != nil && ready.Reason == reason
		}
	}
	r.Created(pool)
	r.Await("the pool is served", isFor(v1alpha1.ReasonReady))
	r.Namespace(r.options.InClusterNamespace)
	r.Created(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.options.InClusterNamespace, Name: providerLease}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("provider"), LeaseDurationSeconds: new(int32(600))},
	})
	r.Await("the pool is left to the provider", isFor(v1alpha1.ReasonProviderRunning))
}

func (r *running) exports() {
	series := map[string]int{
		metrics.Claims: 2, metrics.Protected: 3, metrics.CertificateExpiry: 1, metrics.Build: 1, metrics.PoolCapacity: 3, metrics.InClusterProvider: 1,
	}
	r.Await(fmt.Sprintf("as many time series are exported: %v", series), func(context.Context) bool {
		for name, count := range series {
			if got, err := testutil.GatherAndCount(r.registry, name); err != nil || got != count {
				return false
			}
		}
		return true
	})
	const protected = `
# HELP %[1]s %[2]s
# TYPE %[1]s gauge
%[1]s{policy="cadastre-allocations"} 1
%[1]s{policy="cadastre-cluster-networks"} 1
%[1]s{policy="cadastre-filled-in"} 1
`
	want := fmt.Sprintf(protected, metrics.Protected, metrics.DefinitionOf(metrics.Protected).Help)
	if err := testutil.GatherAndCompare(r.registry, strings.NewReader(want), metrics.Protected); err != nil {
		r.Error(err)
	}
}

// isAlone expects that a second operator cannot use the same registry.
func (r *running) isAlone() {
	config, err := r.OperatorConfig(r.Context())
	suite.Must(r, err)
	second := r.options
	second.SkipNameValidation, second.ProbeAddress, second.History.File.Path = true, "0", ""
	if err := Run(r.Context(), config, second); err == nil || !strings.Contains(err.Error(), "registering metrics: ") {
		r.Errorf("a second operator ends with %v", err)
	}
}

func (r *running) lease() *coordinationv1.Lease {
	lease := &coordinationv1.Lease{}
	suite.Must(r, r.Get(r.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: leaseName}, lease))
	return lease
}

func (r *running) leads() {
	host, err := os.Hostname()
	suite.Must(r, err)
	lease := r.lease()
	if holder := lease.Spec.HolderIdentity; holder == nil || !strings.HasPrefix(*holder, host+"_") || lease.Labels[versionLabel] == "" {
		r.Errorf("the lease belongs to %v, with the labels %v", holder, lease.Labels)
	}
	if seconds := lease.Spec.LeaseDurationSeconds; seconds == nil || *seconds != 2 {
		r.Errorf("the lease lasts %v s, want 2", seconds)
	}
}

// ends expects the lease to be given up, for the next leader, the last spans to be sent, and the metrics
// to be removed.
func (r *running) ends() {
	r.stop()
	select {
	case err := <-r.ended:
		suite.Must(r, err)
	case <-time.After(r.Patience):
		r.Fatal("it does not end")
	}
	if holder := r.lease().Spec.HolderIdentity; holder != nil && *holder != "" {
		r.Errorf("the lease is still that of %s", *holder)
	}
	if r.spans.Count() == 0 {
		r.Error("the last spans are not sent")
	}
	if families, err := r.registry.Gather(); len(families) > 0 || err != nil {
		r.Errorf("%d metrics are still exported, %v", len(families), err)
	}
}

// removesFinalizers expects that the operator can remove finalizers, and an administrator cannot.
func (r *running) removesFinalizers() {
	config, err := r.OperatorConfig(r.Context())
	suite.Must(r, err)
	var report strings.Builder
	if err := RemoveFinalizers(r.Context(), r.Config(), r.options, &report); err == nil || !strings.Contains(err.Error(), "run remove-finalizers in a pod of the operator") {
		r.Errorf("an administrator removes finalizers: %v", err)
	}
	if report.Len() > 0 {
		r.Errorf("the refused removal has done something: %s", &report)
	}
	r.Created(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: removalRole},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: removalRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: cluster.Namespace, Name: cluster.ServiceAccount}},
	})
	suite.Must(r, RemoveFinalizers(r.Context(), config, r.options, &report))
	const want = `nothing new is handed out, by the ValidatingAdmissionPolicy cadastre-removal
removed ipam.cadastre.dev/held from 6 of kind IPAllocation
removed ipam.cadastre.dev/release-address from 1 of kind IPAddressClaim
removed ipam.cadastre.dev/pool from 2 of kind IPPool
removed ipam.cadastre.dev/protect-address from 1 of kind IPAddress
no object has a finalizer of Cadastre any more
`
	if report.String() != want {
		r.Errorf("the report is\n%s", &report)
	}
	for _, list := range []client.ObjectList{&v1alpha1.IPAllocationList{}, &v1alpha1.IPPoolList{}, &ipamv1.IPAddressClaimList{}, &ipamv1.IPAddressList{}} {
		suite.Must(r, r.List(r.Context(), list))
		r.expectNoFinalizer(list)
	}
}

func (r *running) expectNoFinalizer(list client.ObjectList) {
	suite.Must(r, meta.EachListItem(list, func(object runtime.Object) error {
		if obj := object.(client.Object); len(obj.GetFinalizers()) > 0 {
			r.Errorf("%T %s has the finalizers %q", obj, obj.GetName(), obj.GetFinalizers())
		}
		return nil
	}))
}
