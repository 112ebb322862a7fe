package ipaddressclaim

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kube"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// line keeps, on every replica, those claims in line that the leader could not
// serve, so that nobody overtakes them; and tells the view of addresses that
// are about to be released. It writes nothing.
type line struct {
	allocator.Parts
	client client.Reader
	// serves reports whether the controllers of this operator serve a claim: what they
	// do not is not in line.
	serves func(*ipamv1.IPAddressClaim) bool
}

func (l *line) setup(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("ipaddressclaim-line").
		For(&ipamv1.IPAddressClaim{}).
		Watches(&ipamv1.IPAddress{}, &handler.EnqueueRequestForObject{}).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(claimsOf(l.client)), builder.WithPredicates(pauseChanged())).
		WithOptions(controller.Options{NeedLeaderElection: new(false)}).
		Complete(l)
}

// Reconcile implements reconcile.Reconciler.
func (l *line) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	holder := holderNamed(req.Namespace, req.Name)
	claim := &ipamv1.IPAddressClaim{}
	if err := l.client.Get(ctx, req.NamespacedName, claim); err != nil {
		l.Queue.Leave(holder)
		return reconcile.Result{}, kube.IgnoreNotFound(err)
	}
	if !claim.DeletionTimestamp.IsZero() && !inUse(claim) {
		for _, record := range l.Ledger.HeldBy(holder) {
			l.Ledger.Leaving(record.Name)
		}
	}
	waits, err := l.waits(ctx, claim)
	if err != nil {
		return reconcile.Result{}, err
	}
	request, errs := adapt.AddressRequest(parts(claim))
	if !waits || len(errs) > 0 {
		l.Queue.Leave(holder)
		return reconcile.Result{}, nil
	}
	l.Queue.Wait(queue.Waiter{Since: claim.CreationTimestamp.Time, Holder: holder, Request: request, Standing: standing(claim)})
	return reconcile.Result{}, nil
}

// standing is what the condition of a claim says of its turn.
func standing(claim *ipamv1.IPAddressClaim) queue.Standing {
	switch conditions.GetReason(claim, ipamv1.IPAddressClaimReadyCondition) {
	case v1alpha1.ReasonRecordRefused, v1alpha1.ReasonLimitReached:
		return queue.Refused
	case ipamv1.IPAddressClaimReadyPoolExhaustedReason:
		return queue.WantsRoom
	}
	return queue.Unknown
}

// waits reports whether a claim of ours waits for an address: one that nothing pauses,
// and that could not be served. One that has an IPAddress already, which is in
// conflict, is served by no other address: nobody has to wait behind it. The same
// holds for one that another operator serves, or none.
func (l *line) waits(ctx context.Context, claim *ipamv1.IPAddressClaim) (bool, error) {
	ready := conditions.Get(claim, ipamv1.IPAddressClaimReadyCondition)
	if !l.serves(claim) || !isOurs(claim.Spec.PoolRef) || ready == nil || ready.Status != metav1.ConditionFalse ||
		claim.Status.AddressRef.Name != "" || !claim.DeletionTimestamp.IsZero() || annotations.HasPaused(claim) {
		return false, nil
	}
	if err := l.client.Get(ctx, client.ObjectKeyFromObject(claim), &ipamv1.IPAddress{}); !kube.IsNotFound(err) {
		return false, err
	}
	cluster, err := clusterOf(ctx, l.client, claim)
	if err != nil || cluster == nil {
		return clusterName(claim) == "", err
	}
	return !annotations.IsPaused(cluster, cluster), nil
}

// holds reports whether a record's holder exists: the IPAddress of the claim's name
// with this address, or, while there is no IPAddress, the claim. A record that is
// being deleted, while its claim is not and has not been told of any address, is what
// is left of a release that was cut short: the claim cannot be served until it is gone.
func holds(ctx context.Context, reader client.Reader, record ipam.Record) (bool, error) {
	key := client.ObjectKey{Namespace: record.Holder.Namespace, Name: record.Holder.Name}
	address, claim := &ipamv1.IPAddress{}, &ipamv1.IPAddressClaim{}
	err := reader.Get(ctx, key, address)
	if kube.IgnoreNotFound(err) != nil {
		return false, err
	}
	inUse := err == nil && isOurs(address.Spec.PoolRef)
	if inUse && !has(address, record) {
		return false, nil
	}
	if inUse && !record.Terminating {
		return true, nil
	}
	if err := reader.Get(ctx, key, claim); err != nil {
		return inUse, kube.IgnoreNotFound(err)
	}
	if record.Terminating && claim.Status.AddressRef.Name == "" && claim.DeletionTimestamp.IsZero() {
		return false, nil
	}
	return inUse || record.HolderUID == "" || record.HolderUID == string(claim.UID), nil
}

// has reports whether an IPAddress is that of the record.
func has(address *ipamv1.IPAddress, record ipam.Record) bool {
	addr, invalid := adapt.AddressInUse(nil, address.Spec.Address)
	return invalid == nil && addr == record.Block.Addr()
}
