// Package controller has the controller of ExampleMachines: each gets addresses from IPAM
// providers, by the IPAM contract of Cluster API, and gives them back when it is deleted.
package controller

import (
	"context"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/cluster-api/util/paused"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"example.com/example-provider/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/clusterapi/addresses"
)

// +kubebuilder:rbac:groups=infrastructure.example.com,resources=examplemachines,verbs=get;list;patch;watch
// +kubebuilder:rbac:groups=infrastructure.example.com,resources=examplemachines/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.example.com,resources=examplemachines/finalizers,verbs=update
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=create;delete;get;list;patch;watch
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch

// Controller reconciles ExampleMachines.
type Controller struct {
	client.Client
	// Live reads without a cache.
	Live client.Reader
}

// Setup registers the controller with a manager.
func (c *Controller) Setup(mgr ctrl.Manager) error {
	ofCluster, err := util.ClusterToTypedObjectsMapper(mgr.GetClient(), &v1alpha1.ExampleMachineList{}, mgr.GetScheme())
	if err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.ExampleMachine{}).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(ofCluster))
	if err := addresses.Watch(b, mgr.GetClient(), &v1alpha1.ExampleMachine{}); err != nil {
		return err
	}
	return b.Complete(reconcile.AsReconciler(mgr.GetClient(), c))
}

// Reconcile gives a machine its addresses, or takes them back from one that is being deleted.
func (c *Controller) Reconcile(ctx context.Context, machine *v1alpha1.ExampleMachine) (_ reconcile.Result, err error) {
	cluster, err := c.clusterOf(ctx, machine)
	if err != nil {
		return reconcile.Result{}, err
	}
	// The controller does nothing for a machine while it or its Cluster is paused, such as by
	// `clusterctl move`. Not even its finalizer is removed.
	if isPaused, changed, err := paused.EnsurePausedCondition(ctx, c.Client, cluster, machine); err != nil || isPaused || changed {
		return reconcile.Result{}, err
	}
	helper, err := patch.NewHelper(machine, c.Client)
	if err != nil {
		return reconcile.Result{}, err
	}
	defer func() { err = errors.Join(err, helper.Patch(ctx, machine)) }()
	switch {
	case !machine.DeletionTimestamp.IsZero():
		return reconcile.Result{}, c.release(ctx, machine)
	case cluster == nil:
		notReady(machine, v1alpha1.ReasonWaitingForCluster, "there is no Cluster "+machine.Labels[clusterv1.ClusterNameLabel]+" in this namespace: create it, or set the label "+clusterv1.ClusterNameLabel)
		return reconcile.Result{}, nil
	default:
		return reconcile.Result{}, c.provision(ctx, machine)
	}
}

// clusterOf returns the Cluster to which the machine belongs; nil if there is none.
func (c *Controller) clusterOf(ctx context.Context, machine *v1alpha1.ExampleMachine) (*clusterv1.Cluster, error) {
	cluster, err := util.GetClusterFromMetadata(ctx, c.Client, machine.ObjectMeta)
	if errors.Is(err, util.ErrNoCluster) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	return cluster, err
}

// addressesOf returns the addresses of the machine's one device.
func (c *Controller) addressesOf(machine *v1alpha1.ExampleMachine) *addresses.Machine {
	return &addresses.Machine{
		Client: c.Client, Live: c.Live, Owner: machine, ClusterName: machine.Labels[clusterv1.ClusterNameLabel],
		Devices: []addresses.Device{{Name: "eth0", Pools: machine.Spec.AddressesFrom}},
	}
}

// provision runs the machine as soon as it has its addresses.
func (c *Controller) provision(ctx context.Context, machine *v1alpha1.ExampleMachine) error {
	// The finalizer is stored before any object is made that must be released.
	if added, err := finalizers.EnsureFinalizer(ctx, c.Client, machine, v1alpha1.Finalizer); err != nil || added {
		return err
	}
	found, waiting, err := c.addressesOf(machine).Ensure(ctx)
	switch {
	case errors.Is(err, addresses.ErrForeignClaim):
		notReady(machine, v1alpha1.ReasonClaimNotOwned, err.Error())
	case len(waiting) > 0:
		notReady(machine, v1alpha1.ReasonWaitingForAddress, strings.Join(waiting, "; "))
	case err == nil:
		run(machine, found)
	}
	return err
}

// run stands for the code by which a real provider starts a machine with these addresses, and the
// prefix and the gateway of each.
func run(machine *v1alpha1.ExampleMachine, found []addresses.Address) {
	machine.Spec.ProviderID = "example://" + machine.Namespace + "/" + machine.Name
	machine.Status.Initialization.Provisioned = new(true)
	machine.Status.Addresses = nil
	for _, address := range found {
		machine.Status.Addresses = append(machine.Status.Addresses,
			clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: address.Prefix.Addr().String()})
	}
	conditions.Set(machine, metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRunning})
}

// release gives the addresses back, and lets the machine go when that is done. A real provider stops
// the machine first: once a claim is gone, another machine may have its address.
func (c *Controller) release(ctx context.Context, machine *v1alpha1.ExampleMachine) error {
	waiting, err := c.addressesOf(machine).Release(ctx)
	switch {
	case len(waiting) > 0:
		notReady(machine, v1alpha1.ReasonDeleting, strings.Join(waiting, "; "))
	case err == nil:
		controllerutil.RemoveFinalizer(machine, v1alpha1.Finalizer)
	}
	return err
}

// notReady sets the condition Ready to False.
func notReady(machine *v1alpha1.ExampleMachine, reason, message string) {
	conditions.Set(machine, metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message})
}
