// Package controller has the controller of ExampleMachines: each gets an address from an IPAM
// provider, by the IPAM contract of Cluster API, and gives it back when it is deleted.
package controller

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
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
)

// +kubebuilder:rbac:groups=infrastructure.example.com,resources=examplemachines,verbs=get;list;patch;watch
// +kubebuilder:rbac:groups=infrastructure.example.com,resources=examplemachines/status,verbs=patch
// +kubebuilder:rbac:groups=infrastructure.example.com,resources=examplemachines/finalizers,verbs=update
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=create;delete;get;list;watch
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=get
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
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.ExampleMachine{}).
		Owns(&ipamv1.IPAddressClaim{}). // it has its address, or is gone
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(ofCluster)).
		Complete(reconcile.AsReconciler(mgr.GetClient(), c))
}

// Reconcile gives a machine its address, or takes it back from one that is being deleted.
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

// provision runs the machine as soon as it has an address.
func (c *Controller) provision(ctx context.Context, machine *v1alpha1.ExampleMachine) error {
	// The finalizer is stored before any object is made that must be released.
	if added, err := finalizers.EnsureFinalizer(ctx, c.Client, machine, v1alpha1.Finalizer); err != nil || added {
		return err
	}
	claim, err := c.ensureClaim(ctx, machine)
	if err != nil {
		return err
	}
	if !metav1.IsControlledBy(claim, machine) {
		notReady(machine, v1alpha1.ReasonClaimNotOwned, "the IPAddressClaim "+claim.Name+" does not belong to the machine: delete it, or make a machine with another name")
		return nil
	}
	if claim.Status.AddressRef.Name == "" { // the controller watches claims
		notReady(machine, v1alpha1.ReasonWaitingForAddress, conditions.GetMessage(claim, ipamv1.IPAddressClaimReadyCondition))
		return nil
	}
	address := &ipamv1.IPAddress{}
	key := client.ObjectKey{Namespace: claim.Namespace, Name: claim.Status.AddressRef.Name}
	if err := c.Live.Get(ctx, key, address); err != nil {
		return fmt.Errorf("reading the address of IPAddressClaim %s: %w", client.ObjectKeyFromObject(claim), err)
	}
	run(machine, address)
	return nil
}

// run stands for the code by which a real provider starts a machine with this address, prefix and
// gateway.
func run(machine *v1alpha1.ExampleMachine, address *ipamv1.IPAddress) {
	machine.Spec.ProviderID = "example://" + machine.Namespace + "/" + machine.Name
	machine.Status.Initialization.Provisioned = new(true)
	machine.Status.Addresses = clusterv1.MachineAddresses{{Type: clusterv1.MachineInternalIP, Address: address.Spec.Address}}
	conditions.Set(machine, metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRunning})
}

// release gives the address back, and lets the machine go when that is done. A real provider stops
// the machine first: once the claim is gone, another machine may have the address.
func (c *Controller) release(ctx context.Context, machine *v1alpha1.ExampleMachine) error {
	claim := &ipamv1.IPAddressClaim{}
	err := c.Live.Get(ctx, client.ObjectKeyFromObject(machine), claim) // a cache may be behind a create
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("looking for the IPAddressClaim: %w", err)
	}
	if !metav1.IsControlledBy(claim, machine) { // nor is one that does not exist
		controllerutil.RemoveFinalizer(machine, v1alpha1.Finalizer)
		return nil
	}
	notReady(machine, v1alpha1.ReasonDeleting, "the address is being released")
	if err := c.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the IPAddressClaim: %w", err)
	}
	return nil // it is gone when the IPAM provider has removed its finalizer
}

// notReady sets the condition Ready to False.
func notReady(machine *v1alpha1.ExampleMachine, reason, message string) {
	conditions.Set(machine, metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message})
}
