// Package clusternetwork reconciles the IPClaims of the networks of Clusters of Cluster API. The
// webhook on Clusters makes them when a Cluster is created. The controller makes the stored Cluster
// their owner and keeps them until the Cluster is gone, claims the networks of Clusters that exist
// already, and deletes the claims of Clusters that were never stored. It never changes a Cluster.
package clusternetwork

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.cadastre.dev,resources=ipclaims,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Controller reconciles the claims of Clusters. Its requests are names of Clusters. Only the leader
// runs it.
type Controller struct {
	Metrics *metrics.Instruments
	Tracer  trace.Tracer

	Client client.Client
	// Live reads without a cache.
	Live  client.Reader
	Clock clock.PassiveClock
	// Grace is the time for which a claim of a Cluster that is not stored stays as it is: longer than a
	// request to create the Cluster can last.
	Grace   time.Duration
	Workers int
	Within  kubeutil.Namespaces
	Events  events.EventRecorder

	// sightings has the claims of each Cluster that were seen to be left over: a map[types.UID]sighting,
	// which only the pass over the Cluster uses.
	sightings sync.Map
}

// sighting holds the version of a claim, and the time when it was first seen to be left over.
type sighting struct {
	version string
	at      time.Time
}

// byCluster is the index of the cache of IPClaims by the Cluster whose network has the claim.
const byCluster = "clusterNetwork"

func indexedCluster(obj client.Object) []string {
	if cluster := convert.ClusterOfClaim(obj); cluster != "" {
		return []string{cluster}
	}
	return nil
}

func requestOfClaim(_ context.Context, claim client.Object) []reconcile.Request {
	if cluster := convert.ClusterOfClaim(claim); cluster != "" {
		return []reconcile.Request{kubeutil.RequestFor(claim.GetNamespace(), cluster)}
	}
	return nil
}

// SetupWithManager registers the controller. The API server must serve Clusters.
func (c *Controller) SetupWithManager(mgr manager.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.IPClaim{}, byCluster, indexedCluster); err != nil {
		return err
	}
	changed := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	backoff := kubeutil.NewBackoff(clock.RealClock{}, "clusternetwork", c.Metrics)
	return builder.ControllerManagedBy(mgr).
		Named("clusternetwork").
		For(&clusterv1.Cluster{}, builder.WithPredicates(changed)).
		Watches(&v1alpha1.IPClaim{}, handler.EnqueueRequestsFromMapFunc(requestOfClaim), builder.WithPredicates(predicate.Funcs{UpdateFunc: mayNeedPass})).
		WatchesRawSource(backoff).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Workers, RateLimiter: backoff.Limiter()}).
		Complete(c.Within.Limit(backoff.Passes(tracing.Passes(c.Tracer, "clusternetwork", c))))
}

// Reconcile implements reconcile.Reconciler.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s, err := c.readScope(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if s.cluster == nil {
		return c.release(ctx, s)
	}
	if annotations.IsPaused(s.cluster, s.cluster) { // as while it is moved
		return reconcile.Result{}, nil
	}
	if err := c.findNetworks(ctx, s); err != nil {
		return reconcile.Result{}, err
	}
	for _, n := range s.networks {
		if err = c.keep(ctx, s, n); err != nil {
			break
		}
	}
	if len(s.claimed) > 0 {
		c.Events.Eventf(s.cluster, nil, corev1.EventTypeNormal, v1alpha1.EventNetworksClaimed, eventAction, "%s", strings.Join(s.claimed, ", "))
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return c.release(ctx, s)
}

// scope holds the data of one pass over a Cluster.
type scope struct {
	name types.NamespacedName
	// cluster is nil if it is missing.
	cluster *clusterv1.Cluster
	// isStored reports whether a live read has found the cluster.
	isStored bool
	// claims has the claims of the Cluster by name.
	claims map[string]*v1alpha1.IPClaim
	// networks are the blocks that the Cluster has.
	networks []convert.ClusterNetwork
	// claimed describes the blocks whose claims became the Cluster's in this pass.
	claimed []string
}

func (c *Controller) readScope(ctx context.Context, name types.NamespacedName) (*scope, error) {
	s := &scope{name: name, claims: map[string]*v1alpha1.IPClaim{}}
	claims := &v1alpha1.IPClaimList{}
	if err := c.Client.List(ctx, claims, client.InNamespace(name.Namespace), client.MatchingFields{byCluster: name.Name}); err != nil {
		return nil, err
	}
	for i := range claims.Items {
		s.claims[claims.Items[i].Name] = &claims.Items[i]
	}
	cluster, err := readCluster(ctx, c.Client, name)
	s.cluster = cluster
	return s, err
}

// readCluster returns a Cluster, nil if there is none.
func readCluster(ctx context.Context, reader client.Reader, name types.NamespacedName) (*clusterv1.Cluster, error) {
	cluster := &clusterv1.Cluster{}
	err := reader.Get(ctx, name, cluster)
	if kubeutil.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Cluster %s: %w", name, err)
	}
	return cluster, nil
}

// findNetworks finds the blocks that the Cluster has: those that the webhook noted, and those that its
// annotations ask for.
func (c *Controller) findNetworks(ctx context.Context, s *scope) error {
	cluster, err := fieldsOf(s.cluster)
	if err != nil {
		return err
	}
	noted := convert.ParseNetworks(cluster.Annotations[v1alpha1.AnnotationNetworksFilled])
	for _, n := range noted {
		if n.Class != "" && cluster.Has(n) {
			s.networks = append(s.networks, n)
		}
	}
	namespace := kubeutil.NewNamespace()
	if err := c.Client.Get(ctx, types.NamespacedName{Name: s.name.Namespace}, namespace); err != nil {
		return kubeutil.IgnoreNotFound(err)
	}
	if !cluster.IsEnabled(namespace.Labels) {
		return nil
	}
	asked, _, errs := cluster.Networks(namespace.Annotations)
	if len(errs) > 0 && len(noted) > 0 { // its annotations were removed since
		return nil
	}
	if len(errs) > 0 {
		c.warn(s, v1alpha1.EventNetworksInvalid, errs.ToAggregate().Error())
		return nil
	}
	for _, n := range convert.WithoutNoted(asked, noted) {
		if n.Class != "" && n.Block.IsValid() {
			s.networks = append(s.networks, n)
		}
	}
	return nil
}

// fieldsOf returns the fields of a Cluster that have its networks.
func fieldsOf(cluster *clusterv1.Cluster) (convert.Cluster, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(cluster)
	return convert.ClusterOf(ipam.Name{Namespace: cluster.Namespace, Name: cluster.Name}, object), err
}

// eventAction is the action of the events of a Cluster.
const eventAction = "ClaimNetworks"

func (c *Controller) warn(s *scope, reason, message string) {
	c.Events.Eventf(s.cluster, nil, corev1.EventTypeWarning, reason, eventAction, "%s", message)
}

// keep claims a block of the Cluster, and keeps its claim as long as the Cluster has the block.
func (c *Controller) keep(ctx context.Context, s *scope, n convert.ClusterNetwork) error {
	want := n.Claim(ipam.Name(s.name))
	claim := s.claims[want.Name]
	if claim == nil {
		claim = &v1alpha1.IPClaim{}
		err := c.Live.Get(ctx, client.ObjectKeyFromObject(want), claim)
		if kubeutil.IsNotFound(err) {
			return c.create(ctx, s, n, want)
		}
		if err != nil {
			return fmt.Errorf("reading IPClaim %s: %w", want.Name, err)
		}
	}
	switch {
	case convert.ClusterOfClaim(claim) != s.name.Name:
		c.warn(s, v1alpha1.EventNetworkConflict, fmt.Sprintf("%s %s cannot be claimed: IPClaim %s is not one of this Cluster: delete it", n.Purpose, n.Value, claim.Name))
		return nil
	case claim.Spec.CIDR != want.Spec.CIDR:
		c.warn(s, v1alpha1.EventNetworkConflict, fmt.Sprintf("%s is %s, and IPClaim %s holds %s: delete that claim, or restore its block", n.Purpose, n.Value, claim.Name, claim.Spec.CIDR))
		return nil
	case claim.Spec.AllocationName == "":
		c.warn(s, v1alpha1.EventNetworkConflict, fmt.Sprintf("%s %s is not held for this Cluster yet: look at the conditions of IPClaim %s", n.Purpose, n.Value, claim.Name))
	}
	return c.own(ctx, s, n, claim)
}

// note notes that a claim became the Cluster's.
func (s *scope) note(n convert.ClusterNetwork, claim *v1alpha1.IPClaim) {
	if claim.Spec.AllocationName != "" {
		s.claimed = append(s.claimed, fmt.Sprintf("%s %s of class %s", n.Purpose, n.Value, n.Class))
	}
}

// isStored reports whether the API server has the Cluster. It is read live before claims are changed for it: a
// cache that is behind shows a former Cluster, whose claims the garbage collector deletes each time.
func (c *Controller) isStored(ctx context.Context, s *scope) (bool, error) {
	if s.isStored {
		return true, nil
	}
	cluster, err := readCluster(ctx, c.Live, s.name)
	s.isStored = cluster != nil && cluster.UID == s.cluster.UID
	return s.isStored, err
}

// create claims a block that the Cluster has. The claim is stored even if the block is taken.
func (c *Controller) create(ctx context.Context, s *scope, n convert.ClusterNetwork, claim *v1alpha1.IPClaim) error {
	if !s.cluster.DeletionTimestamp.IsZero() {
		return nil
	}
	if isStored, err := c.isStored(ctx, s); !isStored {
		return err
	}
	addOwner(claim, s.cluster)
	err := c.Client.Create(ctx, claim)
	if apierrors.IsAlreadyExists(err) { // since it was read; its event follows
		return nil
	}
	if err != nil {
		c.warn(s, v1alpha1.EventNetworkConflict, fmt.Sprintf("%s cannot be claimed: %v", claim.Spec.CIDR, err))
		return fmt.Errorf("creating IPClaim %s: %w", claim.Name, err)
	}
	s.note(n, claim)
	return nil
}

// own makes the Cluster the owner of a claim, and keeps the claim from being deleted.
func (c *Controller) own(ctx context.Context, s *scope, n convert.ClusterNetwork, claim *v1alpha1.IPClaim) error {
	if !claim.DeletionTimestamp.IsZero() { // it holds the block until the Cluster is gone
		return nil
	}
	before := claim.DeepCopy()
	isChanged := addOwner(claim, s.cluster)
	if _, isAttempt := claim.Annotations[v1alpha1.AnnotationAttempt]; isAttempt {
		delete(claim.Annotations, v1alpha1.AnnotationAttempt)
		isChanged = true
	}
	if !isChanged {
		return nil
	}
	if isStored, err := c.isStored(ctx, s); !isStored {
		return err
	}
	err := c.Client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	switch {
	case err == nil:
		s.note(n, claim)
	case !apierrors.IsConflict(err) && !kubeutil.IsNotFound(err):
		c.warn(s, v1alpha1.EventNetworkConflict, fmt.Sprintf("IPClaim %s cannot be made this Cluster's: change what refuses that: %v", claim.Name, err))
	}
	return kubeutil.IgnoreNotFound(err)
}
