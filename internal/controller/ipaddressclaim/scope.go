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

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// scope is what one pass knows of a claim and the IPAddress of its name, either
// of which may be missing. Look sets all but the record.
type scope struct {
	name    ipam.Name
	claim   *ipamv1.IPAddressClaim
	address *ipamv1.IPAddress
	// cluster is nil where the claim belongs to none, or to one that is missing.
	cluster *clusterv1.Cluster
	// request is what the claim asks for; invalid says why it asks for nothing that could
	// be served, and is nil otherwise.
	request ipam.Request
	invalid error
	// finalizerRemoved is when the finalizer of the claim was removed last: the cache may have yet to show that.
	finalizerRemoved removal
	// record is set by recordExisting or bind: the address is held.
	record ipam.Record
	// again is set by askAgain: when to ask again for the right to use the pool.
	again time.Duration
	// retry is set by allocate where the claim has lost its turn: after how long it is
	// tried again.
	retry time.Duration
}

func (s *scope) holder() ipam.Holder { return convert.HolderOfAddressClaim(s.name) }

// look reads what a pass needs from the caches, with what was done to the claim last.
func (c *Controller) look(ctx context.Context, key types.NamespacedName) (*scope, error) {
	name := ipam.Name{Namespace: key.Namespace, Name: key.Name}
	last := c.expected.claims.last(name) // before the cache is read, which forgets it after
	s, err := look(ctx, c.Client, key)
	if err != nil {
		return nil, err
	}
	s.finalizerRemoved = last
	return s, nil
}

// look reads the claim, the IPAddress of its name, and the Cluster.
func look(ctx context.Context, reader client.Reader, key types.NamespacedName) (*scope, error) {
	s := &scope{name: ipam.Name{Namespace: key.Namespace, Name: key.Name}}
	claim, address := &ipamv1.IPAddressClaim{}, &ipamv1.IPAddress{}
	switch found, err := find(ctx, reader, key, claim); {
	case err != nil:
		return nil, err
	case found:
		s.claim = claim
		var errs field.ErrorList
		s.request, errs = convert.AddressRequest(parts(claim))
		s.invalid = convert.PolicyError(errs)
		if s.cluster, err = clusterOf(ctx, reader, claim); err != nil {
			return nil, err
		}
	}
	switch found, err := find(ctx, reader, key, address); {
	case err != nil:
		return nil, err
	case found:
		s.address = address
	}
	return s, nil
}

func find(ctx context.Context, reader client.Reader, key types.NamespacedName, into client.Object) (bool, error) {
	err := reader.Get(ctx, key, into)
	if err != nil {
		return false, kubeutil.IgnoreNotFound(err)
	}
	return true, nil
}

// step is what a pass does.
type step int

const (
	leaveAlone step = iota
	// refuse says in the claim that no such kind of pool exists.
	refuse
	// serve gives the claim an address, or repairs what it has.
	serve
	// release gives back the address of a claim that is being deleted.
	release
	// keepAddress records the block of an IPAddress that has no claim: somebody
	// made it before the claim, or is moving both.
	keepAddress
	// dropAddress removes the finalizer of an IPAddress that has no claim any more.
	dropAddress
)

// next decides what there is to do.
func (s *scope) next() step {
	switch {
	case s.claim == nil && s.address == nil:
		return leaveAlone
	case s.claim == nil && !isOurs(s.address.Spec.PoolRef):
		return leaveAlone
	case s.claim == nil && !s.address.DeletionTimestamp.IsZero():
		return dropAddress
	case s.claim == nil:
		return keepAddress
	case isOfUnknownKind(s.claim.Spec.PoolRef) && s.claim.DeletionTimestamp.IsZero():
		return refuse
	case !isOurs(s.claim.Spec.PoolRef):
		return leaveAlone
	case !s.claim.DeletionTimestamp.IsZero():
		return release
	}
	return serve
}

func isOurs(ref ipamv1.IPPoolReference) bool { return convert.IsOurs(ref.APIGroup, ref.Kind) }

// isOfUnknownKind reports whether a reference is into our group, and names none of its
// kinds.
func isOfUnknownKind(ref ipamv1.IPPoolReference) bool {
	return convert.IsOurGroup(ref.APIGroup) && !isOurs(ref)
}

// clusterName is the name of the claim's Cluster: spec.clusterName, or the label
// that came before it; empty where there is none.
func clusterName(claim *ipamv1.IPAddressClaim) string {
	return cmp.Or(claim.Spec.ClusterName, claim.Labels[clusterv1.ClusterNameLabel])
}

// clusterOf is the claim's Cluster, nil where it has none or it is missing.
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

// parts are what counts of a claim.
func parts(claim *ipamv1.IPAddressClaim) convert.AddressClaim {
	ref := claim.Spec.PoolRef
	return convert.AddressClaim{
		Namespace: claim.Namespace, Name: claim.Name,
		PoolGroup: ref.APIGroup, PoolKind: ref.Kind, PoolName: ref.Name,
		Annotations: claim.Annotations,
	}
}

// kind is that of the claims, in Cluster API's group.
const kind = "IPAddressClaim"

// errNotSeen means that what there is was made a moment ago, and is not in a
// cache yet, or in the view. The claim is reconciled again soon.
var errNotSeen = errors.New("the address is not in the cache yet")

// isServed reports whether a claim is of the namespaces, and has the label, that this
// operator is limited to.
func isServed(claim *ipamv1.IPAddressClaim, namespaces kubeutil.Namespaces, filter string) bool {
	return namespaces.Has(claim.Namespace) && (filter == "" || labels.HasWatchLabel(claim, filter))
}

// groupOf is the group of an apiVersion.
func groupOf(apiVersion string) string {
	group, _, _ := strings.Cut(apiVersion, "/")
	return group
}

// order is for the claim, with all that is known before its request is resolved.
func (s *scope) order() allocator.Order {
	order := allocator.Order{Origin: allocator.OriginAddress, Holder: s.holder(), Sticky: s.request.Sticky}
	if s.claim != nil {
		order.Origin = allocator.OriginController
		order.HolderUID = string(s.claim.UID)
		order.Waiting = s.waiting()
	}
	return order
}

// waiting is the claim's place in the queue.
func (s *scope) waiting() queue.Waiter {
	return queue.Waiter{Since: s.claim.CreationTimestamp.Time, Holder: s.holder(), Request: s.request, Reason: waitReason(s.claim)}
}

// waitReason is what the condition of a claim says of its turn.
func waitReason(claim *ipamv1.IPAddressClaim) queue.WaitReason {
	switch conditions.GetReason(claim, ipamv1.IPAddressClaimReadyCondition) {
	case v1alpha1.ReasonRecordRefused, v1alpha1.ReasonLimitReached:
		return queue.ReasonRefused
	case ipamv1.IPAddressClaimReadyPoolExhaustedReason:
		return queue.ReasonNoRoom
	}
	return queue.ReasonUnknown
}

// inUse reports whether somebody's finalizer keeps the claim: a machine that has not
// gone yet. The garbage collector's own waits for us, in turn.
func inUse(claim *ipamv1.IPAddressClaim) bool {
	return slices.ContainsFunc(claim.Finalizers, func(f string) bool {
		return f != v1alpha1.FinalizerRelease && f != finalizerMetal3 && f != finalizerInCluster && f != metav1.FinalizerDeleteDependents
	})
}

// finalizerMetal3 is on the claims of Cluster API's provider for Metal3, which
// takes it off together with the deletion: it says nothing of an address in use.
const finalizerMetal3 = "metal3data.infrastructure.cluster.x-k8s.io"

// finalizerInCluster is what Cluster API's in-cluster provider puts on all claims of a
// Cluster whose pause ends, whatever pool they name, and takes off none but its own. (It
// finds them by the name of the Cluster, in internal/controllers/ipaddressclaim.go and
// pkg/ipamutil/reconciler.go of its v1.0.3.) On a claim of ours it says nothing.
const finalizerInCluster = "ipam.cluster.x-k8s.io/ReleaseAddress"

// halt is why nothing may be done for a claim at the moment.
type halt struct{ reason, message string }

// halted is why nothing may be done for the claim at the moment: its Cluster is missing
// or paused, or the claim or its pool is (contract, "Normal IPAddressClaim" 2, "Deleted
// IPAddressClaim" 1); nil where that is not so. Nobody waits for the Cluster of a claim
// that is being deleted: it is often the first to go.
func (c *Controller) halted(s *scope) *halt {
	name := clusterName(s.claim)
	switch {
	case annotations.HasPaused(s.claim):
		return &halt{clusterv1.PausedReason, "this claim is paused: remove its annotation " + clusterv1.PausedAnnotation}
	case s.cluster == nil && name != "" && s.claim.DeletionTimestamp.IsZero():
		return &halt{v1alpha1.ReasonClusterNotFound, fmt.Sprintf("there is no Cluster %q: create it, or delete this claim", name)}
	case s.cluster != nil && annotations.IsPaused(s.cluster, s.cluster):
		return &halt{clusterv1.PausedReason, fmt.Sprintf("the Cluster %q is paused: set its spec.paused to false, and remove its annotation %s", name, clusterv1.PausedAnnotation)}
	}
	return c.poolHalted(s)
}

// poolHalted is that the pool is paused which the claim names, or has its address from.
func (c *Controller) poolHalted(s *scope) *halt {
	keys := []ipam.PoolKey{s.request.Pool}
	for _, record := range c.Ledger.HeldBy(s.holder()) {
		keys = append(keys, record.Pool)
	}
	for _, key := range keys {
		if pool, ok := c.Catalogue.Pool(key); ok && pool.Paused {
			return &halt{ipamv1.IPAddressClaimReadyPoolNotReadyReason, fmt.Sprintf("%s is paused by an annotation: have it removed", key)}
		}
	}
	return nil
}

// tellHalt says in the claim why nothing is done for it, where it has no address yet.
// One that has it keeps that, and its condition.
//
// "Abort reconciliation" in the contract does not forbid to say so: the contracts of
// other providers ask that a paused object shows it ("providers SHOULD surface the
// paused status of an object", infra-machine.md, "InfraMachine: pausing"), and Cluster
// API's own util/paused writes the status of paused objects. It stands in Ready, and
// not in a condition Paused, which would cost every claim one more write.
func (c *Controller) tellHalt(ctx context.Context, s *scope, why *halt) error {
	if s.claim.Status.AddressRef.Name != "" {
		return nil
	}
	before := s.claim.DeepCopy()
	conditions.Set(s.claim, metav1.Condition{
		Type: ipamv1.IPAddressClaimReadyCondition, Status: metav1.ConditionFalse, Reason: why.reason, Message: why.message,
	})
	_, err := c.writeStatus(ctx, before, s.claim)
	return err
}

// refuse says in a claim that our API group lacks the kind which it names. A reference
// cannot be changed, so that this is all that is ever done for it.
func (c *Controller) refuse(ctx context.Context, s *scope) error {
	unknown := convert.UnknownKind(s.claim.Spec.PoolRef.Kind)
	before := s.claim.DeepCopy()
	conditions.Set(s.claim, metav1.Condition{
		Type: ipamv1.IPAddressClaimReadyCondition, Status: metav1.ConditionFalse,
		Reason: ipamv1.IPAddressClaimReadyAllocationFailedReason, Message: unknown.Error() + ": make another claim",
	})
	return c.writeAndTell(ctx, before, s.claim)
}

// upToDate reports whether a pass over the claim would change nothing: its record is
// in the view, its IPAddress in the cache with its metadata, and its status reports
// both. A leader that is new finds nearly all claims like that, and the waiters
// are not to wait for them. It costs O(1), and is never true where a pass would do
// something.
func (c *Controller) upToDate(ctx context.Context, key types.NamespacedName) bool {
	s, err := c.look(ctx, key)
	return err == nil && c.isServed(s) && c.hasMetadata(ctx, s)
}

// isServed reports whether the claim has its address and says so. It sets the record.
func (c *Controller) isServed(s *scope) bool {
	if s.next() != serve || s.address == nil || !s.address.DeletionTimestamp.IsZero() ||
		s.address.Spec.PoolRef != s.claim.Spec.PoolRef || !slices.Contains(s.claim.Finalizers, v1alpha1.FinalizerRelease) {
		return false
	}
	records := c.Ledger.HeldBy(s.holder())
	if len(records) != 1 || !isRecordOf(s, records[0]) || c.Allocator.Confirmed(records[0]) != nil || c.Ledger.Conflict(records[0]) != nil {
		return false
	}
	s.record = records[0]
	return c.statusUpToDate(s)
}

// isRecordOf reports whether the record is the claim's own and its IPAddress's.
func isRecordOf(s *scope, record ipam.Record) bool {
	return record.HolderUID == string(s.claim.UID) && !record.PoolUnknown && record.State == ipam.StateBound && !record.Terminating &&
		record.Block.Addr().String() == s.address.Spec.Address
}

// statusUpToDate reports whether the claim's status is what a pass would write.
func (c *Controller) statusUpToDate(s *scope) bool {
	if c.Queue.Has(s.holder()) {
		return false
	}
	ready := conditions.Get(s.claim, ipamv1.IPAddressClaimReadyCondition)
	reason, message, _ := c.reason(s, nil)
	return s.claim.Status.AddressRef.Name == s.address.Name && ready != nil &&
		ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == s.claim.Generation && ready.Reason == reason && ready.Message == message
}

// hasMetadata reports whether the IPAddress lacks nothing of what ensureMetadata gives.
func (c *Controller) hasMetadata(ctx context.Context, s *scope) bool {
	ensured := s.address.DeepCopy()
	return c.ensureMetadata(ctx, s, ensured) == nil && sameMetadata(s.address, ensured)
}
