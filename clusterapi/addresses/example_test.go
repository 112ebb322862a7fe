package addresses_test

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/clusterapi/addresses"
)

// finalizer is on each machine until its addresses are released.
const finalizer = "machine.example.com"

// Controller reconciles machines. For the example, a ConfigMap stands for the infrastructure machine.
type Controller struct {
	client.Client
	Live client.Reader
}

func Example() {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{}) // with a scheme that has ipamv1
	if err != nil {
		panic(err)
	}
	c := &Controller{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}
	b := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{})
	if err := addresses.Watch(b, mgr.GetClient(), &corev1.ConfigMap{}); err != nil {
		panic(err)
	}
	if err := b.Complete(reconcile.AsReconciler(mgr.GetClient(), c)); err != nil {
		panic(err)
	}
}

// Reconcile gets the addresses of a machine with two families on one device, or releases them. It
// leaves out the check whether the machine is paused.
func (c *Controller) Reconcile(ctx context.Context, machine *corev1.ConfigMap) (reconcile.Result, error) {
	m := &addresses.Machine{
		Client:      c.Client,
		Live:        c.Live,
		Owner:       machine,
		ClusterName: machine.Labels[clusterv1.ClusterNameLabel],
		Devices: []addresses.Device{{Name: "eth0", Pools: []ipamv1.IPPoolReference{
			{APIGroup: "ipam.cluster.x-k8s.io", Kind: "InClusterIPPool", Name: "machines-v4"},
			{APIGroup: "ipam.cluster.x-k8s.io", Kind: "InClusterIPPool", Name: "machines-v6"},
		}}},
	}
	if !machine.DeletionTimestamp.IsZero() {
		// First delete the machine at its infrastructure, and wait until it is gone.
		waiting, err := m.Release(ctx)
		if err != nil || len(waiting) > 0 {
			return reconcile.Result{}, err
		}
		controllerutil.RemoveFinalizer(machine, finalizer)
		return reconcile.Result{}, c.Update(ctx, machine)
	}
	if controllerutil.AddFinalizer(machine, finalizer) {
		return reconcile.Result{}, c.Update(ctx, machine)
	}
	found, waiting, err := m.Ensure(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(waiting) > 0 {
		fmt.Println("Waiting:", strings.Join(waiting, "; ")) // in a condition
		return reconcile.Result{}, nil
	}
	for _, address := range found {
		fmt.Println(address.Device, address.Prefix, address.Gateway) // create the machine with them
	}
	return reconcile.Result{}, nil
}
