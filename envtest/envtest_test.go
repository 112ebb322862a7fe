package envtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
)

// TestMain uses the control plane of the other suites, and more patience than the 20 s of the
// library, unless the environment states another. Short tests are skipped if it has not been built.
func TestMain(m *testing.M) {
	flag.Parse()
	etcd, err := cluster.Binary("etcd")
	if testing.Short() && errors.Is(err, cluster.ErrNotBuilt) {
		return
	}
	for name, value := range map[string]string{
		"KUBEBUILDER_ASSETS":                     filepath.Dir(etcd),
		"KUBEBUILDER_CONTROLPLANE_START_TIMEOUT": "1m",
		"KUBEBUILDER_CONTROLPLANE_STOP_TIMEOUT":  "1m",
	} {
		if os.Getenv(name) == "" {
			err = errors.Join(err, os.Setenv(name, value))
		}
	}
	if err != nil {
		panic(err)
	}
	ctrl.SetLogger(zap.New())
	os.Exit(m.Run())
}

// TestOperatorIsEffectiveWhenStartReturns expects only one request for each.
func TestOperatorIsEffectiveWhenStartReturns(t *testing.T) {
	cfg, k8s := startPlane(t, &envtest.Environment{})
	start(t, cfg, Options{})

	pool, claim := poolOf("10.0.0.0/24"), claimOf("first")
	create(t, k8s, pool, claim)
	if claim.Status.AllocatedCIDR != "10.0.0.0/32" {
		t.Errorf("the create call answered %+v", claim.Status)
	}
	record := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Spec.AllocationName}}
	own := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: "own"}}
	must(t, k8s.Get(t.Context(), client.ObjectKeyFromObject(record), record))
	record.Spec.DeepCopyInto(&own.Spec)
	for what, c := range map[string]struct {
		err  error
		says string
	}{
		"making an IPAllocation": {k8s.Create(t.Context(), own), "ValidatingAdmissionPolicy 'cadastre-allocations'"},
		"writing what the operator writes": {
			patch(t, k8s, claim, `{"metadata":{"annotations":{"`+v1alpha1.AnnotationUseGranted+`":"me"}}}`), "ValidatingAdmissionPolicy 'cadastre-filled-in'",
		},
		"deleting an IPAllocation in use": {k8s.Delete(t.Context(), record), `admission webhook "delete.ipallocation.ipam.cadastre.dev"`},
		"deleting a pool in use":          {k8s.Delete(t.Context(), pool), `admission webhook "delete.ippool.ipam.cadastre.dev"`},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("%s: %v, want the error %q", what, c.err, c.says)
		}
	}

	address := addressOf(t, k8s, "machine")
	if address != "10.0.0.1" {
		t.Errorf("the IPAddressClaim has %s", address)
	}
	claims := &v1alpha1.IPClaimList{}
	must(t, k8s.List(t.Context(), claims))
	if len(claims.Items) != 1 {
		t.Errorf("there are claims that Start has made: %+v", claims.Items)
	}
}

func TestStartCanBeRepeated(t *testing.T) {
	cfg, k8s := startPlane(t, &envtest.Environment{})
	failsOnATakenPort(t, cfg)

	first := start(t, cfg, Options{})
	create(t, k8s, poolOf("10.0.0.0/24"), claimOf("first"))
	must(t, first.Stop())
	must(t, first.Stop())
	if err := k8s.Create(t.Context(), claimOf("without-operator")); err == nil {
		t.Error("a claim was created while no operator runs")
	}

	start(t, cfg, Options{Flags: []string{"--namespace=elsewhere"}})
	second := claimOf("second")
	create(t, k8s, second)
	if second.Status.AllocatedCIDR != "10.0.0.1/32" {
		t.Errorf("the next claim has %q: is the first address still in use?", second.Status.AllocatedCIDR)
	}
}

// failsOnATakenPort expects that an operator does not start while another process listens on its
// port.
func failsOnATakenPort(t *testing.T, cfg *rest.Config) {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	must(t, err)
	defer listener.Close()
	on, err := connect(cfg)
	must(t, err)
	must(t, on.install(t.Context()))
	settings, err := Options{}.settings()
	must(t, err)
	settings.WebhookPort = listener.Addr().(*net.TCPAddr).Port
	must(t, on.installWebhooks(t.Context(), settings.WebhookPort))
	ctx, cancel := context.WithTimeout(t.Context(), startWithin)
	defer cancel()
	if _, err := on.run(ctx, settings); !errors.Is(err, syscall.EADDRINUSE) || ctx.Err() != nil {
		t.Errorf("%v, and the context: %v", err, ctx.Err())
	}
}

// TestOneProcessRunsSeveralOperators runs two operators at the same time. On the second control plane the
// CRDs of Cluster API are the caller's, with their older version.
func TestOneProcessRunsSeveralOperators(t *testing.T) {
	crds := filepath.Join(moduleDir(t, "sigs.k8s.io/cluster-api"), "core", "config", "crd", "bases")
	var planes []client.Client
	for _, env := range []*envtest.Environment{{}, {CRDDirectoryPaths: []string{crds}, ErrorIfCRDPathMissing: true}} {
		cfg, k8s := startPlane(t, env)
		start(t, cfg, Options{})
		planes = append(planes, k8s)
	}
	for i, k8s := range planes {
		create(t, k8s, poolOf("10.0.0.0/24"))
		if address := addressOf(t, k8s, "machine"); address != "10.0.0.0" {
			t.Errorf("the IPAddressClaim has %s", address)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		must(t, k8s.Get(t.Context(), client.ObjectKey{Name: "ipaddressclaims.ipam.cluster.x-k8s.io"}, definition))
		if older := len(definition.Spec.Versions) > 1; older != (i == 1) {
			t.Errorf("the CRD of control plane %d has other versions than v1beta2: %t", i, older)
		}
	}
}

// startPlane starts a control plane, which stops when the test ends.
func startPlane(t *testing.T, env *envtest.Environment) (*rest.Config, client.Client) {
	t.Helper()
	cfg, err := env.Start()
	must(t, err)
	t.Cleanup(func() { must(t, env.Stop()) })
	scheme := runtime.NewScheme()
	must(t, errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), ipamv1.AddToScheme(scheme)))
	k8s, err := client.New(cfg, client.Options{Scheme: scheme})
	must(t, err)
	return cfg, k8s
}

// start starts an operator, which stops when the test ends.
func start(t *testing.T, cfg *rest.Config, o Options) *Operator {
	t.Helper()
	op, err := Start(t.Context(), cfg, o)
	must(t, err)
	t.Cleanup(func() { must(t, op.Stop()) })
	return op
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, k8s client.Client, objects ...client.Object) {
	t.Helper()
	for _, obj := range objects {
		must(t, k8s.Create(t.Context(), obj))
	}
}

func patch(t *testing.T, k8s client.Client, obj client.Object, change string) error {
	t.Helper()
	return k8s.Patch(t.Context(), obj.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(change)))
}

func poolOf(cidr string) *v1alpha1.IPPool {
	return &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Spec: v1alpha1.IPPoolSpec{PoolSpec: v1alpha1.PoolSpec{CIDR: cidr}}}
}

// claimOf claims one address of the pool.
func claimOf(name string) *v1alpha1.IPClaim {
	return &v1alpha1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: name},
		Spec:       v1alpha1.IPClaimSpec{PoolRef: &v1alpha1.PoolReference{Name: "pool"}, PrefixLength: new(int32(32))},
	}
}

// addressOf makes an IPAddressClaim of the pool, and waits until it has its address.
func addressOf(t *testing.T, k8s client.Client, name string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	defer cancel()
	claim := &ipamv1.IPAddressClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: name},
		Spec:       ipamv1.IPAddressClaimSpec{PoolRef: ipamv1.IPPoolReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "IPPool", Name: "pool"}},
	}
	must(t, k8s.Create(ctx, claim))
	must(t, wait.PollUntilContextCancel(ctx, probeEvery, true, func(ctx context.Context) (bool, error) {
		err := k8s.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		return claim.Status.AddressRef.Name != "", err
	}))
	address := &ipamv1.IPAddress{}
	must(t, k8s.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: claim.Status.AddressRef.Name}, address))
	return address.Spec.Address
}

// moduleDir returns the directory of a module that this one requires.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

func TestStartNamesUnreachableServer(t *testing.T) {
	port, err := freePort()
	must(t, err)
	server := fmt.Sprintf("%s:%d", loopback, port)
	if _, err := Start(t.Context(), &rest.Config{Host: server}, Options{}); err == nil || !strings.Contains(err.Error(), server) {
		t.Errorf("%v, and %s does not answer", err, server)
	}
}

func TestFlagsConfigureOperator(t *testing.T) {
	settings, err := Options{Flags: []string{"--default-ip-family=IPv6", "--platform-project", "ops"}}.settings()
	if err != nil {
		t.Fatal(err)
	}
	if settings.DefaultIPFamily != "IPv6" || settings.PlatformProject != "ops" {
		t.Errorf("%+v", settings)
	}
	if got, want := settings.User(), "system:serviceaccount:cadastre-system:cadastre-controller-manager"; got != want {
		t.Errorf("the operator is %s, want %s, which the policies exempt", got, want)
	}
}

func TestFlagsSetByStartAreRejected(t *testing.T) {
	for flag, want := range map[string]string{
		"--webhook-port=1":             "Options.Flags: --webhook-port is set by Start itself: leave it out",
		"--operator-namespace=x":       "Options.Flags: --operator-namespace is set by Start itself: leave it out",
		"--leader-elect":               "Options.Flags: --leader-elect is set by Start itself: leave it out",
		"--metrics-bind-address=:8080": "Options.Flags: --diagnostics-address is set by Start itself: leave it out",
		"IPv6":                         `Options.Flags: "IPv6" is no flag: write --name=value`,
		"--paint=red":                  "Options.Flags: unknown flag: --paint",
	} {
		if _, err := (Options{Flags: []string{flag}}).settings(); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", flag, err, want)
		}
	}
}

func TestPortInUseIsReplaced(t *testing.T) {
	taken := fmt.Errorf("listening: %w", syscall.EADDRINUSE)
	var ports []int
	op, err := onFreePort(func(port int) (*Operator, error) {
		if ports = append(ports, port); len(ports) < 3 {
			return nil, taken
		}
		return &Operator{}, nil
	})
	if op == nil || err != nil || len(ports) != 3 {
		t.Errorf("%v, %v after %v", op, err, ports)
	}

	other := errors.New("something else")
	tries := 0
	_, err = onFreePort(func(int) (*Operator, error) { tries++; return nil, other })
	if !errors.Is(err, other) || tries != 1 {
		t.Errorf("%v after %d tries", err, tries)
	}
	_, err = onFreePort(func(int) (*Operator, error) { return nil, taken })
	if !errors.Is(err, taken) {
		t.Errorf("%v, where every port is taken", err)
	}
}

// late implements an API server that applies installed objects later: the first request of each
// kind shows that none is in force yet.
type late struct{ requests []string }

// isRepeated notes a request, and reports whether it was made before.
func (l *late) isRepeated(request string) bool {
	l.requests = append(l.requests, request)
	return len(l.requests) > 1 && l.requests[len(l.requests)-2] == request
}

func (l *late) create(_ context.Context, _ client.WithWatch, obj client.Object, options ...client.CreateOption) error {
	request := "create"
	if len(options) > 0 {
		request = "create dry"
	}
	if l.isRepeated(request) {
		obj.(*v1alpha1.IPClaim).Status.Phase = v1alpha1.ClaimPending
	}
	return nil
}

func (l *late) patch(_ context.Context, _ client.WithWatch, obj client.Object, change client.Patch, options ...client.PatchOption) error {
	body, err := change.Data(obj)
	switch retains := strings.Contains(string(body), "Retain"); {
	case err != nil || len(options) == 0:
		return errors.Join(err, errors.New("is no dry run"))
	case retains && l.isRepeated("retain"):
		return apierrors.NewInvalid(schema.GroupKind{Kind: "IPClaim"}, obj.GetName(), nil)
	case !retains && l.isRepeated("annotate"):
		return apierrors.NewForbidden(schema.GroupResource{Resource: "ipclaims"}, obj.GetName(), nil)
	}
	return nil
}

func (l *late) delete(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
	l.requests = append(l.requests, "delete")
	return nil
}

func (l *late) plane(t *testing.T) *plane {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(scheme))
	return &plane{k8s: fake.NewClientBuilder().WithScheme(scheme).
		WithInterceptorFuncs(interceptor.Funcs{Create: l.create, Patch: l.patch, Delete: l.delete}).Build()}
}

func TestStartWaitsUntilConfigurationIsEffective(t *testing.T) {
	server := &late{}
	ready := make(chan struct{})
	close(ready)
	must(t, server.plane(t).await(t.Context(), ready))
	want := []string{"create dry", "create dry", "create", "retain", "retain", "annotate", "annotate", "delete"}
	if diff := cmp.Diff(want, server.requests); diff != "" {
		t.Errorf("Start has asked for something else:\n%s", diff)
	}
}

func TestStartSendsNoRequestBeforeOperatorIsReady(t *testing.T) {
	server := &late{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := server.plane(t).await(ctx, make(chan struct{}))
	if !errors.Is(err, context.Canceled) || len(server.requests) > 0 {
		t.Errorf("%v, after %q", err, server.requests)
	}
}
