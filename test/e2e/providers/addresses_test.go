package providers

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/clusterapi/addresses"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

const (
	namespace = "machines"
	finalizer = "providers.example.com/machine"

	// infrastructure is the kind of the Cluster's infrastructure. Cluster API needs it to convert the
	// Cluster for providers that read v1beta1.
	infrastructure = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: nobodysclusters.infrastructure.cluster.x-k8s.io
  labels: {cluster.x-k8s.io/v1beta1: v1, cluster.x-k8s.io/v1beta2: v1}
spec:
  group: infrastructure.cluster.x-k8s.io
  names: {kind: NobodysCluster, plural: nobodysclusters}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`
)

// TestAddresses gives a machine addresses of each provider by the package addresses, with no pass that
// an event does not trigger.
func TestAddresses(t *testing.T) {
	t.Run("Cadastre", func(t *testing.T) {
		w := suite.Start(t, cluster.Options{ClusterAPI: true, ControllerManager: true, Managers: 1})
		machineStory(w,
			`{apiVersion: ipam.cadastre.dev/v1alpha1, kind: IPPool, metadata: {name: v4}, spec: {cidr: 10.98.0.0/24, ranges: [10.98.0.2-10.98.0.5], network: {prefixLength: 24, gateway: 10.98.0.1}}}`,
			`{apiVersion: ipam.cadastre.dev/v1alpha1, kind: IPPool, metadata: {name: v6}, spec: {cidr: "2001:db8:98::/64", network: {prefixLength: 64, gateway: "2001:db8:98::1"}}}`)
	})
	t.Run("in-cluster", func(t *testing.T) {
		machineStory(inCluster(t),
			`{apiVersion: ipam.cluster.x-k8s.io/v1alpha2, kind: InClusterIPPool, metadata: {name: v4, namespace: machines}, spec: {addresses: [10.98.0.2-10.98.0.5], prefix: 24, gateway: 10.98.0.1}}`,
			`{apiVersion: ipam.cluster.x-k8s.io/v1alpha2, kind: InClusterIPPool, metadata: {name: v6, namespace: machines}, spec: {addresses: ["2001:db8:98::2-2001:db8:98::5"], prefix: 64, gateway: "2001:db8:98::1"}}`)
	})
}

// machineStory creates a machine with two devices, removes one, and deletes the machine.
func machineStory(w *suite.World, pools ...string) {
	w.Helper()
	w.Namespace(namespace)
	w.Created(parse(w, infrastructure), build.Cluster(namespace, "example"))
	c := start(w, pools)
	machine := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", Finalizers: []string{finalizer}},
		Data:       map[string]string{"devices": "eth0 eth1"},
	}
	w.Created(machine)
	found := c.await(machine, "eth0 eth1")
	if len(found) != 4 {
		w.Fatalf("four addresses are due, of two devices with two families: %v", found)
	}
	for i, field := range found {
		prefix, gateway, _ := strings.Cut(field, ">")
		network, want := netip.MustParsePrefix("10.98.0.0/24"), "10.98.0.1"
		if i%2 == 1 {
			network, want = netip.MustParsePrefix("2001:db8:98::/64"), "2001:db8:98::1"
		}
		if got := netip.MustParsePrefix(prefix); got.Masked() != network || gateway != want {
			w.Errorf("address %d is %s with the gateway %s, want one of %s with %s", i, got, gateway, network, want)
		}
	}

	suite.Must(w, w.Patch(w.Context(), machine, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"devices":"eth1"}}`))))
	if diff := cmp.Diff(found[2:], c.await(machine, "eth1")); diff != "" {
		w.Errorf("the addresses of eth1 after eth0 is removed (-want +got):\n%s", diff)
	}
	w.Await("the claims of eth0 are gone", func(ctx context.Context) bool {
		list := &ipamv1.IPAddressClaimList{}
		return w.List(ctx, list, client.InNamespace(namespace)) == nil && len(list.Items) == 2
	})

	w.Deleted(machine)
	w.Gone(machine)
	claims, addresses := &ipamv1.IPAddressClaimList{}, &ipamv1.IPAddressList{}
	suite.Must(w, errors.Join(w.List(w.Context(), claims), w.List(w.Context(), addresses)))
	if len(claims.Items)+len(addresses.Items) > 0 {
		w.Errorf("%d claims and %d addresses are left of a machine that is gone", len(claims.Items), len(addresses.Items))
	}
}

// parse returns the object of a YAML document.
func parse(w *suite.World, text string) *unstructured.Unstructured {
	w.Helper()
	object := &unstructured.Unstructured{}
	suite.Must(w, yaml.Unmarshal([]byte(text), &object.Object))
	return object
}

// machines is a controller of machines, for which ConfigMaps stand.
type machines struct {
	client.Client
	live  client.Reader
	pools []ipamv1.IPPoolReference
	world *suite.World
}

// start creates the pools, and starts the controller.
func start(w *suite.World, pools []string) *machines {
	w.Helper()
	mgr, err := ctrl.NewManager(w.Config(), ctrl.Options{Scheme: w.Scheme(), Metrics: server.Options{BindAddress: "0"}})
	suite.Must(w, err)
	c := &machines{Client: mgr.GetClient(), live: mgr.GetAPIReader(), world: w}
	for _, text := range pools {
		pool := parse(w, text)
		w.Created(pool)
		c.pools = append(c.pools, ipamv1.IPPoolReference{APIGroup: pool.GroupVersionKind().Group, Kind: pool.GetKind(), Name: pool.GetName()})
	}
	b := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named(strings.ToLower(c.pools[0].Kind))
	suite.Must(w, addresses.Watch(b, mgr.GetClient(), &corev1.ConfigMap{}))
	suite.Must(w, b.Complete(reconcile.AsReconciler(mgr.GetClient(), c)))
	ctx, stop := context.WithCancel(context.WithoutCancel(w.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	w.Cleanup(func() {
		stop()
		suite.Must(w, <-ended)
	})
	return c
}

// Reconcile writes the addresses of a machine into it. Its infrastructure has nothing to remove.
func (c *machines) Reconcile(ctx context.Context, machine *corev1.ConfigMap) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(machine, finalizer) {
		return reconcile.Result{}, nil
	}
	m := &addresses.Machine{Client: c.Client, Live: c.live, Owner: machine, ClusterName: "example"}
	for name := range strings.FieldsSeq(machine.Data["devices"]) {
		m.Devices = append(m.Devices, addresses.Device{Name: name, Pools: c.pools})
	}
	if !machine.DeletionTimestamp.IsZero() {
		waiting, err := m.Release(ctx)
		if err != nil || len(waiting) > 0 {
			return reconcile.Result{}, err
		}
		controllerutil.RemoveFinalizer(machine, finalizer)
		return reconcile.Result{}, c.Update(ctx, machine)
	}
	if _, err := m.ReleaseRemoved(ctx); err != nil {
		return reconcile.Result{}, err
	}
	found, waiting, err := m.Ensure(ctx)
	if err != nil || len(waiting) > 0 {
		return reconcile.Result{}, err
	}
	var fields []string
	for _, address := range found {
		fields = append(fields, address.Prefix.String()+">"+address.Gateway.String())
	}
	before := machine.DeepCopy()
	machine.Data["addresses"], machine.Data["of"] = strings.Join(fields, " "), machine.Data["devices"]
	return reconcile.Result{}, c.Patch(ctx, machine, client.MergeFrom(before))
}

// await waits until a machine has the addresses of its devices, and returns them.
func (c *machines) await(machine *corev1.ConfigMap, devices string) []string {
	c.world.Helper()
	c.world.AwaitUnlessFailed(machine.Name+" has addresses of "+devices, func(ctx context.Context) (bool, error) {
		err := c.world.Get(ctx, client.ObjectKeyFromObject(machine), machine)
		return machine.Data["of"] == devices, err
	})
	return strings.Fields(machine.Data["addresses"])
}
