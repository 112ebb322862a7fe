// Package ipaddressclaim serves Cluster API's IPAddressClaims that name a pool or
// a class of Cadastre, by the IPAM contract v1beta2 of Cluster API 1.14
// (docs/book/src/developer/providers/contracts/ipam.md there). Claims of other
// providers are left untouched.
//
// What is held is what IPAllocations say, as for every holder; an IPAddress tells
// of it. One that is there already, after a move or a restore or because somebody
// made it, is adopted: its block is recorded, and never renumbered.
package ipaddressclaim

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kube"
	"github.com/cadastre-dev/cadastre/internal/requester"
)

// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims/status,verbs=patch
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims/finalizers,verbs=update
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=ipam.cadastre.dev,resources=ippools/finalizers;localippools/finalizers,verbs=update
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Controller reconciles IPAddressClaims, and the IPAddresses of their names. Only
// the leader runs it.
type Controller struct {
	allocator.Parts
	// Client writes, and reads from the cache.
	Client client.Client
	// Live reads without a cache.
	Live client.Reader
	// Asker asks again for the right to use a pool.
	Asker *requester.Asker
	// Orphans collects the records whose claims are gone.
	Orphans Orphans
	// Workers is how many claims are reconciled at a time.
	Workers int
	// Within are the namespaces whose claims it reconciles.
	Within kube.Namespaces
	// WatchFilter is the value of Cluster API's label for filters that a claim must
	// have to be reconciled; empty: any, or none.
	WatchFilter string
	Clock       clock.PassiveClock

	events events.EventRecorder
	// made has a making for each IPAddress that this process makes, by its name, until the
	// cache shows the IPAddress.
	made sync.Map
	// finalizerRemoved is when this process took the finalizer off which version of a claim, by
	// its name, until the claim is gone.
	finalizerRemoved sync.Map
	// unprotected is the same of an IPAddress.
	unprotected sync.Map
	// lost is the UID of the last claim of a name whose deletion was seen, while its
	// IPAddress may still be there.
	lost sync.Map
	// missingPool names the IPAddresses whose pool is missing.
	missingPool sync.Map
}

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
	// record is set by enter or bind: the address is held.
	record ipam.Record
	// again is set by askAgain: when to ask again for the right to use the pool.
	again time.Duration
	// retry is set by allocate where the claim has lost its turn: after how long it is
	// tried again.
	retry time.Duration
}

// Reconcile implements reconcile.Reconciler. The request names a claim.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s, err := c.look(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if s.claim != nil && !c.serves(s.claim) {
		return reconcile.Result{}, nil
	}
	if s.claim == nil { // it may have been put in line while it was deleted
		c.Queue.Leave(s.holder())
	}
	coming := c.coming(s)
	c.found(s, coming)
	switch s.next() {
	case leaveAlone:
		return reconcile.Result{RequeueAfter: coming}, nil
	case refuse:
		return reconcile.Result{}, c.refuse(ctx, s)
	case keepAddress:
		return soon(c.retry(s, c.keep(ctx, s)))
	case dropAddress:
		return soon(c.unprotect(ctx, s))
	case release:
		if c.hasJustRemovedFinalizer(s) {
			return reconcile.Result{RequeueAfter: showsWithin}, nil
		}
		return soon(c.release(ctx, s))
	default:
		return again(ctx, s, c.serve)
	}
}

// making is the last attempt to make an IPAddress.
type making struct {
	since time.Time
	// uid is that of the IPAddress, where the API server has answered.
	uid types.UID
	// unsure says that the answer leaves open whether the IPAddress was stored, or is the
	// one of an earlier attempt.
	unsure bool
}

// storedWithin is for how long an IPAddress may yet be stored, and shown by the cache,
// whose create call was not answered: the API server ends requests after a minute.
const storedWithin = 2 * time.Minute

// coming is for how long an IPAddress that the cache does not show may yet appear, because
// this process made it; 0 where there is none.
func (c *Controller) coming(s *scope) time.Duration {
	made, ok := c.made.Load(s.name)
	if !ok || s.claim != nil || s.address != nil {
		return 0
	}
	left := storedWithin - c.Clock.Since(made.(making).since)
	if left <= 0 {
		c.made.Delete(s.name)
	}
	return max(left, 0)
}

// found forgets that the deletion of a claim was seen where there is another claim of its
// name, or neither a claim nor an IPAddress. A pass that began before the deletion was
// seen may still have that very claim.
func (c *Controller) found(s *scope, coming time.Duration) {
	uid, seen := c.lost.Load(s.name)
	switch {
	case !seen, s.claim != nil && string(s.claim.UID) == uid:
	case s.claim != nil, s.address == nil && coming == 0:
		c.lost.CompareAndDelete(s.name, uid)
	}
}

func (c *Controller) serves(claim *ipamv1.IPAddressClaim) bool {
	return isServed(claim, c.Within, c.WatchFilter)
}

// isServed reports whether a claim is of the namespaces, and has the label, that this
// operator is limited to.
func isServed(claim *ipamv1.IPAddressClaim, namespaces kube.Namespaces, filter string) bool {
	return namespaces.Has(claim.Namespace) && (filter == "" || labels.HasWatchLabel(claim, filter))
}

// soon requeues a claim for which there is something that has not been seen
// yet: where this process, or its leader before, made that, its appearance is no news.
func soon(err error) (reconcile.Result, error) {
	if errors.Is(err, errNotSeen) {
		return reconcile.Result{RequeueAfter: showsWithin}, nil
	}
	return reconcile.Result{}, err
}

// again serves a claim, and has it reconciled again when it is time to ask again for
// the right to use its pool, or to try one again that has lost its turn.
func again(ctx context.Context, s *scope, serve func(context.Context, *scope) error) (reconcile.Result, error) {
	result, err := soon(serve(ctx, s))
	if err == nil && result.IsZero() {
		result.RequeueAfter = cmp.Or(s.again, s.retry)
	}
	return result, err
}

// serve sees to it that the claim has its address, and says where it stands.
func (c *Controller) serve(ctx context.Context, s *scope) error {
	held := c.enter(ctx, s)
	if why := c.halted(s); why != nil {
		return errors.Join(c.tellHalt(ctx, s, why), c.retry(s, held))
	}
	before := s.claim.DeepCopy()
	err := held
	switch {
	case s.hasFormerAddress():
		err = c.dropFormerAddress(ctx, s)
	case err == nil:
		err = c.fulfil(ctx, s)
	}
	retry := c.applyResult(s, err)
	if err := c.writeAndTell(ctx, before, s.claim); err != nil {
		return err
	}
	return retry
}

// fulfil gives the claim an address, or repairs the one that it has.
func (c *Controller) fulfil(ctx context.Context, s *scope) error {
	if err := c.give(ctx, s); err != nil {
		return err
	}
	return c.forgetRequester(ctx, s)
}

func (c *Controller) give(ctx context.Context, s *scope) error {
	if s.address != nil {
		if err := c.protectClaim(ctx, s); err != nil {
			return err
		}
		return c.repair(ctx, s)
	}
	if err := c.allocate(ctx, s); err != nil {
		return err
	}
	return c.createAddress(ctx, s)
}
