package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const finalizer = "conformance.example.org/provider"

// provider is a small IPAM provider of a kind of its own that breaks one clause, or none.
type provider struct {
	client.Client
	kind string
	// breaks is the number of the clause that it breaks, such as C19.
	breaks string
	// cached lists the claims of a Cluster; all other reads are live.
	cached client.Reader
	// ledger holds the claim of each address of each pool.
	ledger map[types.NamespacedName][]types.NamespacedName
}

func (p *provider) setUp(manager ctrl.Manager) error {
	// In order: a priority queue takes the claims that exist when a controller starts after later ones.
	options := controller.Options{SkipNameValidation: new(true), MaxConcurrentReconciles: 1, UsePriorityQueue: new(false)}
	p.cached = manager.GetClient()
	ours := predicate.NewPredicateFuncs(func(claim client.Object) bool { return claim.(*ipamv1.IPAddressClaim).Spec.PoolRef.Kind == p.kind })
	changes := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return p.breaks != "C07" || e.ObjectNew.GetDeletionTimestamp() != nil
	}}
	claims := ctrl.NewControllerManagedBy(manager).Named(p.kind+"-claims").WithOptions(options).
		For(&ipamv1.IPAddressClaim{}, builder.WithPredicates(ours, changes)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(p.claimsOf), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return p.breaks != "C11" },
		}))
	pool := &unstructured.Unstructured{}
	pool.SetGroupVersionKind(version.WithKind(p.kind))
	return errors.Join(
		claims.Complete(p),
		ctrl.NewControllerManagedBy(manager).Named(p.kind+"-pools").WithOptions(options).For(pool).Complete(reconcile.Func(p.reconcilePool)),
	)
}

// claimsOf returns the claims of a Cluster.
func (p *provider) claimsOf(ctx context.Context, cluster client.Object) (requests []reconcile.Request) {
	claims := &ipamv1.IPAddressClaimList{}
	if p.cached.List(ctx, claims, client.InNamespace(cluster.GetNamespace())) != nil {
		return nil
	}
	for _, claim := range claims.Items {
		if claim.Spec.PoolRef.Kind == p.kind && (claim.Spec.ClusterName == cluster.GetName() || claim.Labels[clusterv1.ClusterNameLabel] == cluster.GetName()) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&claim)})
		}
	}
	return requests
}

func (p *provider) reconcilePool(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pool, err := p.pool(ctx, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if p.breaks == "C29" && pool.GetLabels() != nil {
		pool.SetLabels(nil)
		return reconcile.Result{}, p.Update(ctx, pool)
	}
	if p.breaks == "C05" {
		return reconcile.Result{}, nil
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`))
	return reconcile.Result{}, client.IgnoreNotFound(p.Status().Patch(ctx, pool, patch))
}

func (p *provider) pool(ctx context.Context, key types.NamespacedName) (*unstructured.Unstructured, error) {
	pool := &unstructured.Unstructured{}
	pool.SetGroupVersionKind(version.WithKind(p.kind))
	return pool, p.Get(ctx, key, pool)
}

func (p *provider) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	claim := &ipamv1.IPAddressClaim{}
	err := p.Get(ctx, request.NamespacedName, claim)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, p.forget(ctx, request.NamespacedName)
	}
	if err != nil || !p.serves(claim.Spec.PoolRef) {
		return reconcile.Result{}, err
	}
	if paused, err := p.paused(ctx, claim); err != nil || paused {
		return reconcile.Result{}, err
	}
	if claim.DeletionTimestamp != nil {
		err = p.release(ctx, claim)
	} else if p.breaks != "C06" {
		err = p.serve(ctx, claim)
	}
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: 1}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

func (p *provider) serves(pool ipamv1.IPPoolReference) bool {
	return pool.Kind == p.kind && (pool.APIGroup == version.Group || p.breaks == "C08")
}

// paused reports whether a claim has to wait for its Cluster.
func (p *provider) paused(ctx context.Context, claim *ipamv1.IPAddressClaim) (bool, error) {
	if claim.DeletionTimestamp != nil && p.breaks == "C23" {
		return false, nil
	}
	if _, paused := claim.Annotations[clusterv1.PausedAnnotation]; paused && p.breaks != "B04" {
		return true, nil
	}
	name := claim.Spec.ClusterName
	if p.breaks == "C09" {
		name = ""
	}
	if name == "" && p.breaks != "C10" {
		name = claim.Labels[clusterv1.ClusterNameLabel]
	}
	if name == "" {
		return false, nil
	}
	cluster := &clusterv1.Cluster{}
	err := p.Get(ctx, types.NamespacedName{Namespace: claim.Namespace, Name: name}, cluster)
	if apierrors.IsNotFound(err) {
		return p.breaks != "C12", nil
	}
	_, annotated := cluster.Annotations[clusterv1.PausedAnnotation]
	isPaused := cluster.Spec.Paused != nil && *cluster.Spec.Paused
	return isPaused && p.breaks != "C13" || annotated && p.breaks != "C14", err
}

// nameFor returns the name of the IPAddress of a claim.
func (p *provider) nameFor(claim string) string {
	if p.breaks == "C18" {
		return "address-of-" + claim
	}
	return claim
}

func (p *provider) serve(ctx context.Context, claim *ipamv1.IPAddressClaim) error {
	pool, err := p.pool(ctx, types.NamespacedName{Namespace: claim.Namespace, Name: claim.Spec.PoolRef.Name})
	if err != nil {
		return err
	}
	if p.breaks != "C15" && controllerutil.AddFinalizer(claim, finalizer) {
		if err := p.Update(ctx, claim); err != nil {
			return err
		}
	}
	address := &ipamv1.IPAddress{}
	err = p.Get(ctx, types.NamespacedName{Namespace: claim.Namespace, Name: p.nameFor(claim.Name)}, address)
	if apierrors.IsNotFound(err) {
		if address = p.newAddress(claim, pool); address == nil {
			return errors.New("the pool is full") // is tried again
		}
		err = p.Create(ctx, address)
	} else if err == nil && p.breaks == "B05" && claim.Status.AddressRef.Name == "" {
		err = fmt.Errorf("IPAddress %s exists", address.Name)
	}
	if err != nil {
		return err
	}
	before := claim.DeepCopy()
	if p.breaks != "C22" {
		claim.Status.AddressRef.Name = address.Name
	}
	if p.breaks != "B03" {
		meta.SetStatusCondition(&claim.Status.Conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Served"})
	}
	return p.Status().Patch(ctx, claim, client.MergeFrom(before))
}

// newAddress allocates an address, and returns its IPAddress; nil if the pool is full.
func (p *provider) newAddress(claim *ipamv1.IPAddressClaim, pool *unstructured.Unstructured) *ipamv1.IPAddress {
	holder, in := client.ObjectKeyFromObject(claim), client.ObjectKeyFromObject(pool)
	if p.ledger[in] == nil {
		p.ledger[in] = make([]types.NamespacedName, poolSize)
	}
	free := slices.Index(p.ledger[in], types.NamespacedName{})
	switch {
	case p.breaks == "C16":
		free = 0
	case free < 0:
		return nil
	}
	p.ledger[in][free] = holder
	prefix, network := int32(24), pool.Object["spec"].(map[string]any)["network"].(string)
	address := &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: claim.Namespace, Name: p.nameFor(claim.Name), Finalizers: []string{finalizer},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: ipamv1.GroupVersion.String(), Kind: "IPAddressClaim", Name: claim.Name, UID: claim.UID, Controller: new(true), BlockOwnerDeletion: new(p.breaks != "C19")},
				{APIVersion: version.String(), Kind: p.kind, Name: pool.GetName(), UID: pool.GetUID(), Controller: new(false), BlockOwnerDeletion: new(p.breaks != "C20")},
			},
		},
		Spec: ipamv1.IPAddressSpec{
			ClaimRef: ipamv1.IPAddressClaimReference{Name: claim.Name}, PoolRef: claim.Spec.PoolRef,
			Address: fmt.Sprintf("%s.%d", network, free+10), Prefix: &prefix, Gateway: network + ".1",
		},
	}
	switch p.breaks {
	case "C17":
		address.Spec.ClaimRef.Name = "another"
	case "C21":
		address.Finalizers = nil
	case "B01":
		address.Spec.PoolRef.Name = "another"
	case "B02":
		address.Spec.Gateway = "192.0.2.1"
	}
	return address
}

// release gives back the address of a claim that is being deleted.
func (p *provider) release(ctx context.Context, claim *ipamv1.IPAddressClaim) error {
	if p.breaks != "C28" {
		if err := p.forget(ctx, client.ObjectKeyFromObject(claim)); err != nil {
			return err
		}
	}
	if p.breaks == "C27" || !controllerutil.RemoveFinalizer(claim, finalizer) {
		return nil
	}
	return p.Update(ctx, claim)
}

// forget deallocates the address of a claim, and deletes its IPAddress.
func (p *provider) forget(ctx context.Context, claim types.NamespacedName) error {
	for _, holders := range p.ledger {
		if i := slices.Index(holders, claim); i >= 0 && p.breaks != "C24" {
			holders[i] = types.NamespacedName{}
		}
	}
	address := &ipamv1.IPAddress{}
	if err := p.Get(ctx, types.NamespacedName{Namespace: claim.Namespace, Name: p.nameFor(claim.Name)}, address); err != nil {
		return client.IgnoreNotFound(err)
	}
	if p.breaks != "C25" {
		if err := p.Delete(ctx, address); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	if p.breaks == "C26" {
		return nil
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	return client.IgnoreNotFound(p.Patch(ctx, address, patch))
}
