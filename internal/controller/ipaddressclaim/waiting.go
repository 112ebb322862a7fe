package ipaddressclaim

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
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

	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// mayWait reports whether the claim can be in the queue: it is one of ours and asks for something
// that could be served, it is not being deleted, neither it nor its Cluster is paused, and the
// Cluster is not missing. A claim in conflict that has an IPAddress already is served by no other
// address: no claim waits behind it. No other code decides this, on the leader or on the
// other replicas.
func (s *scope) mayWait() bool {
	if s.claim == nil || s.address != nil || s.invalid != nil || !isOurs(s.claim.Spec.PoolRef) ||
		!s.claim.DeletionTimestamp.IsZero() || annotations.HasPaused(s.claim) {
		return false
	}
	if s.cluster == nil {
		return clusterName(s.claim) == ""
	}
	return !annotations.IsPaused(s.cluster, s.cluster)
}

// isUnserved reports whether the leader could not serve the claim, by the claim's status.
func isUnserved(claim *ipamv1.IPAddressClaim) bool {
	ready := conditions.Get(claim, ipamv1.IPAddressClaimReadyCondition)
	return ready != nil && ready.Status == metav1.ConditionFalse && claim.Status.AddressRef.Name == ""
}

// waiters implements a reconciler that keeps in the queue of every replica the claims that the
// leader could not serve, so that no other replica lets a newer claim overtake them. It also marks
// in the view addresses that are about to be released. It writes nothing.
type waiters struct {
	ledger *ledger.Ledger
	queue  *queue.Queue
	tracer trace.Tracer
	client client.Reader
	// serves reports whether the controllers of this operator serve a claim: other claims are not
	// in the queue.
	serves func(*ipamv1.IPAddressClaim) bool
}

func (w *waiters) setup(mgr manager.Manager) error {
	backoff := kubeutil.NewBackoff(clock.RealClock{}, "ipaddressclaim-waiters", nil)
	return builder.ControllerManagedBy(mgr).
		Named("ipaddressclaim-waiters").
		For(&ipamv1.IPAddressClaim{}).
		Watches(&ipamv1.IPAddress{}, &handler.EnqueueRequestForObject{}).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(claimsOf(w.client)), builder.WithPredicates(pauseChanged())).
		WatchesRawSource(backoff).
		WithOptions(controller.Options{NeedLeaderElection: new(false), RateLimiter: backoff.Limiter()}).
		Complete(backoff.Passes(tracing.Passes(w.tracer, "ipaddressclaim-waiters", w)))
}

// Reconcile implements reconcile.Reconciler.
func (w *waiters) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s, err := readScope(ctx, w.client, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if s.claim != nil && !s.claim.DeletionTimestamp.IsZero() && !isInUse(s.claim) {
		for _, record := range w.ledger.HeldBy(s.holder()) {
			w.ledger.MarkLeaving(record.Name)
		}
	}
	if s.mayWait() && isUnserved(s.claim) && w.serves(s.claim) {
		w.queue.Wait(s.waiter())
	} else {
		w.queue.Leave(s.holder())
	}
	return reconcile.Result{}, nil
}
