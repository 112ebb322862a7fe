package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"example.com/example-provider/api/v1alpha1"
	ipamapi "github.com/cadastre-dev/cadastre/api/v1alpha1"
	cadastre "github.com/cadastre-dev/cadastre/envtest"
)

// startSuite starts etcd and an API server, Cadastre beside it, and the controller under
// test. The test's end stops them in the opposite order.
func startSuite(t *testing.T) client.Client {
	t.Helper()
	g := NewWithT(t)
	ctrl.SetLogger(zap.New())

	// Every suite with envtest does this.
	env := &envtest.Environment{
		CRDDirectoryPaths:        []string{"../config/crd"},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: time.Minute, // if the machine does other work, too
		ControlPlaneStopTimeout:  time.Minute,
	}
	cfg, err := env.Start()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(env.Stop()).To(Succeed()) })

	// The part for real addresses.
	ipam, err := cadastre.Start(t.Context(), cfg, cadastre.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(ipam.Stop()).To(Succeed()) })

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, ipamv1.AddToScheme, ipamapi.AddToScheme, v1alpha1.AddToScheme,
	} {
		g.Expect(add(scheme)).To(Succeed())
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect((&Controller{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}).Setup(mgr)).To(Succeed())
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		g.Expect(<-ended).To(Succeed())
	})

	k8s, err := client.New(cfg, client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	return k8s
}

// world holds a namespace with a Cluster, for one story.
type world struct {
	*WithT
	client.Client
	t         *testing.T
	namespace string
}

// cluster is the name of the Cluster in each namespace.
const cluster = "example"

func newWorld(t *testing.T, k8s client.Client) *world {
	t.Helper()
	w := &world{WithT: NewWithT(t), Client: k8s, t: t}
	w.SetDefaultEventuallyTimeout(30 * time.Second)
	w.SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "team-"}}
	w.create(namespace)
	w.namespace = namespace.Name
	w.create(&clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: cluster},
		Spec: clusterv1.ClusterSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: v1alpha1.GroupVersion.Group, Kind: "ExampleCluster", Name: cluster,
		}},
	})
	return w
}

func (w *world) create(obj client.Object) {
	w.t.Helper()
	w.Expect(w.Create(w.t.Context(), obj)).To(Succeed())
}

// pool creates an IPPool.
func (w *world) pool(name string, spec ipamapi.PoolSpec) ipamv1.IPPoolReference {
	w.t.Helper()
	w.create(&ipamapi.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: ipamapi.IPPoolSpec{PoolSpec: spec}})
	return ipamv1.IPPoolReference{APIGroup: ipamapi.GroupVersion.Group, Kind: "IPPool", Name: name}
}

// machine creates an ExampleMachine.
func (w *world) machine(name string, from ...ipamv1.IPPoolReference) *v1alpha1.ExampleMachine {
	w.t.Helper()
	machine := &v1alpha1.ExampleMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster},
		},
		Spec: v1alpha1.ExampleMachineSpec{AddressesFrom: from},
	}
	w.create(machine)
	return machine
}

// remove deletes an object, and waits until it is gone.
func (w *world) remove(obj client.Object) {
	w.t.Helper()
	w.Expect(w.Delete(w.t.Context(), obj)).To(Succeed())
	w.awaitGone(obj)
}

// awaitGone waits until an object does not exist any more.
func (w *world) awaitGone(obj client.Object) {
	w.t.Helper()
	w.Eventually(func() error { return w.Get(w.t.Context(), client.ObjectKeyFromObject(obj), obj) }).
		Should(MatchError(ContainSubstring("not found")))
}

// setPaused pauses the Cluster, or ends its pause.
func (w *world) setPaused(paused bool) {
	w.t.Helper()
	obj := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: cluster}}
	change := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec": {"paused": %t}}`, paused))
	w.Expect(w.Patch(w.t.Context(), obj, change)).To(Succeed())
}
