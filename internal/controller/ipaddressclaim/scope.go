package ipaddressclaim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/convert"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// scope holds the data of one pass over a claim and the IPAddress of its name. Either of them may
// be missing. readScope sets the fields up to invalid.
type scope struct {
	name    ipam.Name
	targets convert.Targets
	claim   *ipamv1.IPAddressClaim
	address *ipamv1.IPAddress
	// cluster is nil if the claim belongs to no Cluster, or to one that is missing.
	cluster *clusterv1.Cluster
	// request is the request of the claim; invalid is the reason why the request cannot be served,
	// and nil otherwise.
	request ipam.Request
	invalid error
	// record is the record of the held address, set by recordExisting or bind.
	record ipam.Record
	// grantRetry is the time until the right to use the pool is asked for again, set by requestGrant.
	grantRetry time.Duration
	// retry is the time until the claim is tried again, set by allocate if the claim has lost its
	// turn.
	retry time.Duration
}

func (s *scope) holder() ipam.Holder { return convert.HolderOfAddressClaim(s.name) }

func requestOf(obj client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)}
}

func nameOf(obj client.Object) ipam.Name {
	return ipam.Name{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// readScope reads the claim, the IPAddress of its name, and the Cluster.
func readScope(ctx context.Context, reader client.Reader, key types.NamespacedName, targets convert.Targets) (*scope, error) {
	s := &scope{name: ipam.Name(key), targets: targets}
	claim, address := &ipamv1.IPAddressClaim{}, &ipamv1.IPAddress{}
	switch found, err := getIfExists(ctx, reader, key, claim); {
	case err != nil:
		return nil, err
	case found:
		s.claim = claim
		var errs field.ErrorList
		s.request, errs = convert.AddressRequest(addressClaimOf(claim))
		s.invalid = convert.PolicyError(errs)
		if s.cluster, err = clusterOf(ctx, reader, claim); err != nil {
			return nil, err
		}
	}
	switch found, err := getIfExists(ctx, reader, key, address); {
	case err != nil:
		return nil, err
	case found:
		s.address = address
	}
	return s, nil
}

func getIfExists(ctx context.Context, reader client.Reader, key types.NamespacedName, obj client.Object) (bool, error) {
	err := reader.Get(ctx, key, obj)
	if err != nil {
		return false, kubeutil.IgnoreNotFound(err)
	}
	return true, nil
}

// isActive reports whether the claim is one of ours, and is not being deleted.
func (s *scope) isActive() bool {
	return s.claim != nil && s.isOurs(s.claim.Spec.PoolRef) && s.claim.DeletionTimestamp.IsZero()
}

// mayWait reports whether the claim can be in the queue: it is one of ours and asks for something
// that could be served, it is not being deleted, neither it nor its Cluster is paused, and the
// Cluster is not missing. A claim in conflict that has an IPAddress already is served by no other
// address: no claim waits behind it. No other code decides this, on the leader or on the
// other replicas.
func (s *scope) mayWait() bool {
	if !s.isActive() || s.address != nil || s.invalid != nil || annotations.HasPaused(s.claim) {
		return false
	}
	if s.cluster == nil {
		return clusterName(s.claim) == ""
	}
	return !annotations.IsPaused(s.cluster, s.cluster)
}

func (s *scope) isOurs(ref ipamv1.IPPoolReference) bool { return s.targets.Has(ref.APIGroup, ref.Kind) }

// isOfUnknownKind reports whether a reference is into our group, but names none of its kinds.
func (s *scope) isOfUnknownKind(ref ipamv1.IPPoolReference) bool {
	return convert.IsOurGroup(ref.APIGroup) && !s.isOurs(ref)
}

// isAnyTarget reports whether a reference can be served, whether or not it is by this process.
func isAnyTarget(ref ipamv1.IPPoolReference) bool { return convert.IsTarget(ref.APIGroup, ref.Kind) }

func isInCluster(ref ipamv1.IPPoolReference) bool { return convert.IsInCluster(ref.APIGroup, ref.Kind) }

// clusterName returns the name of the claim's Cluster: spec.clusterName, or the label that came
// before it; empty if the claim has no Cluster.
func clusterName(claim *ipamv1.IPAddressClaim) string {
	return cmp.Or(claim.Spec.ClusterName, claim.Labels[clusterv1.ClusterNameLabel])
}

// clusterOf returns the claim's Cluster, nil if the claim has none or it is missing.
func clusterOf(ctx context.Context, reader client.Reader, claim *ipamv1.IPAddressClaim) (*clusterv1.Cluster, error) {
	name := clusterName(claim)
	if name == "" {
		return nil, nil
	}
	cluster := &clusterv1.Cluster{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: name}, cluster)
	if kubeutil.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for Cluster %s/%s: %w", claim.Namespace, name, err)
	}
	return cluster, nil
}

// addressClaimOf returns the fields of a claim that its request depends on.
func addressClaimOf(claim *ipamv1.IPAddressClaim) convert.AddressClaim {
	ref := claim.Spec.PoolRef
	return convert.AddressClaim{
		Namespace: claim.Namespace, Name: claim.Name,
		PoolGroup: ref.APIGroup, PoolKind: ref.Kind, PoolName: ref.Name,
		Annotations: claim.Annotations,
	}
}

// kind is the kind of the claims, in Cluster API's group.
const kind = "IPAddressClaim"

// errNotSeen means that an object was made or deleted a moment ago, and a cache or the view does not show all of that yet.
// The claim is reconciled again soon.
var errNotSeen = errors.New("the address is not in the cache yet")

// isServed reports whether a claim is in the namespaces, and has the label, to which this operator
// is limited.
func isServed(claim *ipamv1.IPAddressClaim, namespaces kubeutil.Namespaces, filter string) bool {
	return namespaces.Has(claim.Namespace) && (filter == "" || labels.HasWatchLabel(claim, filter))
}

// groupOf returns the group of an apiVersion.
func groupOf(apiVersion string) string {
	group, _, _ := strings.Cut(apiVersion, "/")
	return group
}

// order returns the order for the claim, with all data that is known before its request is
// resolved.
func (s *scope) order() allocator.Order {
	order := allocator.Order{Origin: allocator.OriginAddress, Holder: s.holder(), Sticky: s.request.Sticky}
	if s.claim != nil {
		order.SetHolder(s.claim)
		order.Waiting = s.waiter()
	}
	return order
}

// waiter returns the claim as a waiter in the queue.
func (s *scope) waiter() queue.Waiter {
	return queue.Waiter{Since: s.claim.CreationTimestamp.Time, Holder: s.holder(), Request: s.request, Reason: waitReason(s.claim)}
}

// waitReason returns the reason why a claim waits, by its condition.
func waitReason(claim *ipamv1.IPAddressClaim) queue.WaitReason {
	switch conditions.GetReason(claim, ipamv1.IPAddressClaimReadyCondition) {
	case v1alpha1.ReasonRecordRefused, v1alpha1.ReasonLimitReached:
		return queue.ReasonRefused
	case ipamv1.IPAddressClaimReadyPoolExhaustedReason:
		return queue.ReasonNoRoom
	}
	return queue.ReasonUnknown
}

// isInUse reports whether a finalizer of another party keeps the claim: of a machine that still
// exists. The garbage collector's own finalizer waits for us, in turn. The in-cluster provider puts its
// finalizer on all claims of a Cluster whose pause ends, whatever pool they name (its v1.0.3:
// pkg/ipamutil/reconciler.go).
func isInUse(claim *ipamv1.IPAddressClaim) bool {
	return slices.ContainsFunc(claim.Finalizers, func(f string) bool {
		return f != v1alpha1.FinalizerRelease && f != finalizerMetal3 && f != incluster.FinalizerRelease && f != metav1.FinalizerDeleteDependents
	})
}

// finalizerMetal3 is the finalizer on the claims of Cluster API's provider for Metal3, which
// removes it together with the deletion: it does not mean that the address is in use.
const finalizerMetal3 = "metal3data.infrastructure.cluster.x-k8s.io"

// halt holds the reason why no action is allowed for a claim at the moment.
type halt struct{ reason, message string }

// haltOf returns the reason why no action is allowed for the claim at the moment: its Cluster is
// missing or paused, or the claim or its pool is (contract, "Normal IPAddressClaim" 2, "Deleted
// IPAddressClaim" 1); otherwise nil. A claim that is being deleted does not wait for its Cluster:
// the Cluster is often removed first.
func (c *Controller) haltOf(s *scope) *halt {
	name := clusterName(s.claim)
	switch {
	case annotations.HasPaused(s.claim):
		return &halt{clusterv1.PausedReason, "this claim is paused: remove its annotation " + clusterv1.PausedAnnotation}
	case s.cluster == nil && name != "" && s.claim.DeletionTimestamp.IsZero():
		return &halt{v1alpha1.ReasonClusterNotFound, fmt.Sprintf("there is no Cluster %q: create it, or delete this claim", name)}
	case s.cluster != nil && annotations.IsPaused(s.cluster, s.cluster):
		return &halt{clusterv1.PausedReason, fmt.Sprintf("the Cluster %q is paused: set its spec.paused to false, and remove its annotation %s", name, clusterv1.PausedAnnotation)}
	}
	return c.poolHaltOf(s)
}

// poolHaltOf returns a reason if the pool that the claim names, or that its address is from, is
// paused.
func (c *Controller) poolHaltOf(s *scope) *halt {
	keys := []ipam.PoolKey{s.request.Pool}
	for _, record := range c.Ledger.HeldBy(s.holder()) {
		keys = append(keys, record.Pool)
	}
	for _, key := range keys {
		if pool, ok := c.Catalog.Pool(key); ok && pool.Paused {
			return &halt{ipamv1.IPAddressClaimReadyPoolNotReadyReason, fmt.Sprintf("%s is paused by an annotation: have it removed", key)}
		}
	}
	return nil
}

// reportHalt writes into the claim the reason why nothing is done for it, if it has no address yet. A
// claim that has an address keeps it, and its condition.
//
// "Abort reconciliation" in the contract does not forbid this: the contracts of other providers ask
// that a paused object shows it ("providers SHOULD surface the paused status of an object",
// infra-machine.md, "InfraMachine: pausing"), and Cluster API's own util/paused writes the status
// of paused objects. The reason is in Ready, and not in a condition Paused, which would cost every
// claim one more write.
func (c *Controller) reportHalt(ctx context.Context, s *scope, pause *halt) error {
	if s.claim.Status.AddressRef.Name != "" {
		return nil
	}
	before := s.claim.DeepCopy()
	setNotReady(s.claim, pause.reason, pause.message)
	_, err := c.writeStatus(ctx, before, s.claim)
	return err
}

// refuse writes into a claim that our API group lacks the kind that it names. A reference cannot be
// changed, so nothing else is ever done for the claim.
func (c *Controller) refuse(ctx context.Context, s *scope) error {
	unknown := convert.UnknownKind(s.claim.Spec.PoolRef.Kind)
	before := s.claim.DeepCopy()
	setNotReady(s.claim, ipamv1.IPAddressClaimReadyAllocationFailedReason, unknown.Error()+": make another claim")
	return c.writeStatusAndEvent(ctx, before, s.claim)
}

func setNotReady(claim *ipamv1.IPAddressClaim, reason, message string) {
	conditions.Set(claim, metav1.Condition{Type: ipamv1.IPAddressClaimReadyCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message})
}

// isUpToDate reports whether a pass over the claim would change nothing: its record is in the view,
// its IPAddress in the cache with its metadata, and its status reports both. A new leader finds
// nearly all claims in this state, and the waiting claims must not wait for them. It costs O(1),
// and is never true if a pass would do something.
func (c *Controller) isUpToDate(ctx context.Context, key types.NamespacedName) bool {
	s, err := readScope(ctx, c.Client, key, c.Targets)
	return err == nil && c.isServed(s) && c.hasMetadata(ctx, s)
}

// isServed reports whether the claim has its address and its status reports it. It sets the record.
func (c *Controller) isServed(s *scope) bool {
	if !s.isActive() || s.address == nil || !s.address.DeletionTimestamp.IsZero() ||
		s.address.Spec.PoolRef != s.claim.Spec.PoolRef || !slices.Contains(s.claim.Finalizers, convert.ReleaseFinalizer(s.claim.Spec.PoolRef.APIGroup)) {
		return false
	}
	records := c.Ledger.HeldBy(s.holder())
	if len(records) != 1 || !isRecordOf(s, records[0]) || c.Allocator.CheckConfirmed(records[0]) != nil || c.Ledger.Conflict(records[0]) != nil {
		return false
	}
	s.record = records[0]
	return c.isStatusUpToDate(s)
}

// isRecordOf reports whether the record belongs to the claim and to its IPAddress.
func isRecordOf(s *scope, record ipam.Record) bool {
	return record.HolderUID == string(s.claim.UID) && !record.PoolUnknown && record.State == ipam.StateBound && !record.Terminating &&
		record.Block.Addr().String() == s.address.Spec.Address
}

// isStatusUpToDate reports whether the claim has the status that a pass would write.
func (c *Controller) isStatusUpToDate(s *scope) bool {
	if c.Queue.Has(s.holder()) {
		return false
	}
	ready := conditions.Get(s.claim, ipamv1.IPAddressClaimReadyCondition)
	reason, message, _ := c.reason(s, nil)
	return s.claim.Status.AddressRef.Name == s.address.Name && ready != nil &&
		ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == s.claim.Generation && ready.Reason == reason && ready.Message == message
}

// hasMetadata reports whether the IPAddress has all metadata that ensureMetadata adds.
func (c *Controller) hasMetadata(ctx context.Context, s *scope) bool {
	ensured := s.address.DeepCopy()
	return c.ensureMetadata(ctx, s, ensured) == nil && sameMetadata(s.address, ensured)
}
