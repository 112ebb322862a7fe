package ipaddressclaim

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// recordExisting ensures that the block of an IPAddress that exists is recorded: the block is in
// use, whatever wrote the IPAddress. This is no allocation, and goes on while a Cluster is paused,
// so that no other holder gets an address that is being moved.
func (c *Controller) recordExisting(ctx context.Context, s *scope) error {
	if s.address == nil {
		return nil
	}
	if s.claim != nil && s.address.Spec.PoolRef != s.claim.Spec.PoolRef {
		ref := s.address.Spec.PoolRef
		return &ipam.PolicyError{Field: "spec.poolRef", Value: s.claim.Spec.PoolRef.Name,
			Remedy: fmt.Sprintf("the IPAddress of this name is from the %s %s: delete one of them", ref.Kind, ref.Name)}
	}
	addr, invalid := convert.AddressInUse(field.NewPath("spec", "address"), s.address.Spec.Address)
	if invalid != nil {
		return &ipam.PolicyError{Field: "IPAddress spec.address", Value: invalid.BadValue, Remedy: invalid.Detail}
	}
	if record, ok := c.recordOf(s, addr); ok {
		return c.takeOver(ctx, s, record)
	}
	if err := c.checkUnrecorded(ctx, s); err != nil {
		return err
	}
	return c.recordAddress(ctx, s, addr)
}

// recordOf returns the claim's record of the address, also a record that is kept for a later claim
// of the name: the IPAddress exists, so the block is in use. A record that was made for the claim
// before it had this address has no holder, although the claim exists: it is judged again.
func (c *Controller) recordOf(s *scope, addr netip.Addr) (addressRecord ipam.Record, ok bool) {
	for _, record := range c.Ledger.HeldBy(s.holder()) {
		switch {
		case record.Block.Addr() != addr:
			c.Orphans.Enqueue(record.Name)
		case record.State != ipam.StateReleasing && !record.Terminating:
			addressRecord, ok = record, true
		}
	}
	return addressRecord, ok
}

// takeOver takes over a record that holds the block, once the namespace can use its pool and no
// other record has the block.
func (c *Controller) takeOver(ctx context.Context, s *scope, record ipam.Record) error {
	if err := c.adoptRecord(ctx, s, record); err != nil {
		return err
	}
	if s.record.PoolUnknown {
		if err := c.judgeUse(ctx, s); err != nil {
			return err
		}
	}
	return c.Allocator.CheckConfirmed(s.record)
}

// adoptRecord makes a record of the claim's name the claim's own: a record that was made before the claim,
// or for an earlier claim of the name whose IPAddress still exists. It binds again a record that is
// kept without holder.
func (c *Controller) adoptRecord(ctx context.Context, s *scope, record ipam.Record) (err error) {
	isKept := record.State != ipam.StateBound
	if isKept {
		if record, err = c.Allocator.Adopt(ctx, record); err != nil {
			return err
		}
	}
	s.record = record
	if s.claim == nil || !isKept && record.HolderUID == string(s.claim.UID) {
		return nil
	}
	stamped, err := c.Allocator.Stamp(ctx, record, s.claim)
	if err != nil {
		return err
	}
	s.record = stamped
	return nil
}

// judgeUse judges whether the claim's namespace can use the pool of the record, which was made
// before that was known. It is tried again after any change that can have brought the pool.
func (c *Controller) judgeUse(ctx context.Context, s *scope) error {
	c.expectations.setPoolMissing(s.name, true) // before the pool is looked for, so that no change is missed
	record, err := c.Allocator.JudgeUse(ctx, s.tenancy(), s.record)
	s.record = record
	if err == nil {
		c.expectations.setPoolMissing(s.name, false)
	}
	return err
}

// checkUnrecorded returns errNotSeen if the record that the IPAddress names exists and is only missing
// in the view.
func (c *Controller) checkUnrecorded(ctx context.Context, s *scope) error {
	name := s.address.Annotations[v1alpha1.AnnotationAllocation]
	if name == "" {
		return nil
	}
	allocation := &v1alpha1.IPAllocation{}
	err := c.Live.Get(ctx, client.ObjectKey{Namespace: s.name.Namespace, Name: name}, allocation)
	switch {
	case kubeutil.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("looking for IPAllocation %s/%s: %w", s.name.Namespace, name, err)
	}
	record, unreadable := convert.Record(allocation)
	if unreadable == nil && record.Holder == s.holder() && record.State == ipam.StateBound && !record.Terminating && c.isUnseen(record) {
		return errNotSeen
	}
	return nil
}

// isUnseen reports whether the view does not show this version of a record yet.
func (c *Controller) isUnseen(record ipam.Record) bool {
	current, ok := c.Ledger.Record(record.Name)
	return !ok || current.Version != record.Version
}

// recordAddress records the block that an IPAddress names. If its pool is missing, the IPAddress is
// reconciled again after any change that can have brought the pool.
func (c *Controller) recordAddress(ctx context.Context, s *scope, addr netip.Addr) error {
	c.expectations.setPoolMissing(s.name, true) // before the pools are read, so that no change is missed
	pool, err := c.poolOf(s, addr)
	if err != nil {
		return err
	}
	isKnown, err := c.Catalog.MayHold(s.tenancy(), pool)
	if err != nil {
		return err
	}
	order := s.order()
	if order.PoolUnknown = !isKnown; isKnown {
		c.expectations.setPoolMissing(s.name, false)
	}
	order.Terms = c.Catalog.TermsOfAddress(addr, c.classOf(s))
	order.Gateway = convert.GatewayGiven(s.address.Spec.Gateway)
	if s.record, err = c.Allocator.RecordExisting(ctx, order, pool); err != nil || !s.record.PoolUnknown {
		return err
	}
	return c.judgeUse(ctx, s)
}

// tenancy returns the request with the claim on whose behalf the IPAddress asks, also if the claim
// does not exist.
func (s *scope) tenancy() ipam.Request {
	request := s.request
	request.Claim = s.name
	return request
}

// classOf returns the class that the IPAddress names, or "".
func (c *Controller) classOf(s *scope) string {
	if ref := s.address.Spec.PoolRef; convert.PoolOfAddress(ref.Kind, s.name.Namespace, ref.Name) == (ipam.PoolKey{}) {
		return ref.Name
	}
	return ""
}

// poolOf returns the pool of an IPAddress: the pool that it names; or, if it names a class, its
// owner or the pool in its labels, or else a pool of the class that contains the address.
func (c *Controller) poolOf(s *scope, addr netip.Addr) (ipam.PoolKey, error) {
	ref := s.address.Spec.PoolRef
	if key := convert.PoolOfAddress(ref.Kind, s.name.Namespace, ref.Name); key != (ipam.PoolKey{}) {
		return key, nil
	}
	for _, owner := range s.address.OwnerReferences {
		if groupOf(owner.APIVersion) == v1alpha1.GroupVersion.Group {
			return convert.PoolOfAddress(owner.Kind, s.name.Namespace, owner.Name), nil
		}
	}
	if name := s.address.Labels[v1alpha1.LabelPool]; name != "" {
		key := convert.PoolOfAddress(s.address.Labels[v1alpha1.LabelPoolKind], s.name.Namespace, name)
		if _, ok := c.Catalog.Pool(key); ok {
			return key, nil
		}
	}
	class, _ := c.Catalog.Class(ref.Name)
	pools, _ := c.Catalog.PoolsOf(s.name.Namespace, class.Class)
	at := slices.IndexFunc(pools, func(p ipam.Pool) bool { return p.CIDR.Contains(addr) })
	if at < 0 {
		return ipam.PoolKey{}, &ipam.MissingError{Reason: v1alpha1.ReasonNoPoolForClass,
			Message: fmt.Sprintf("no pool of the IPClass %q has the address %s: create it, or delete the IPAddress", ref.Name, addr)}
	}
	return pools[at].Key, nil
}

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch

// arrival implements the wait for Cluster API: on every replica it waits until Cluster API's kinds
// are served, and then starts the code that serves them, once.
type arrival struct {
	client client.Reader
	mapper meta.RESTMapper
	log    logr.Logger
	// watchClusters begins to watch Clusters; known reports whether all have been seen.
	watchClusters func() (known func() bool, err error)
	// addSource stops the operator from handing out blocks, of any kind, before all Clusters are
	// known.
	addSource func(known func() bool)
	// start serves claims, and needs caches that have started.
	start func() error

	mu                sync.Mutex
	areClustersSynced func() bool // set when Clusters are watched
	isStarted         bool
}

// requiredKinds returns the kinds without which no claim can be served.
func requiredKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		ipamv1.GroupVersion.WithKind(kind),
		ipamv1.GroupVersion.WithKind("IPAddress"),
		clusterv1.GroupVersion.WithKind("Cluster"),
	}
}

// crdNames returns the names of the CRDs of the needed kinds.
func crdNames() []string {
	return []string{"ipaddressclaims." + ipamv1.GroupVersion.Group, "ipaddresses." + ipamv1.GroupVersion.Group, "clusters." + clusterv1.GroupVersion.Group}
}

func (a *arrival) setup(mgr manager.Manager) error {
	if isInstalled, err := a.isInstalled(); err != nil || isInstalled {
		if err != nil {
			return err
		}
		a.isStarted = true
		hasSynced, err := a.watchClusters()
		if err != nil {
			return err
		}
		a.addSource(hasSynced)
		return mgr.Add(onEveryReplica(a.start))
	}
	a.log.Info("Cluster API is not installed: its IPAddressClaims are served as soon as it is")
	isRequiredCRD := predicate.NewPredicateFuncs(func(obj client.Object) bool { return slices.Contains(crdNames(), obj.GetName()) })
	backoff := kubeutil.NewBackoff(clock.RealClock{}, "cluster-api-arrival", nil)
	return builder.ControllerManagedBy(mgr).
		Named("cluster-api-arrival").
		For(newCRD(), builder.WithPredicates(isRequiredCRD)).
		WatchesRawSource(backoff).
		WithOptions(controller.Options{NeedLeaderElection: new(false), RateLimiter: backoff.Limiter()}).
		Complete(backoff.Passes(a))
}

// onEveryReplica implements manager.Runnable: it is called when the existing caches have all
// objects that they watch. If it creates another cache, no other code waits for the objects of that
// cache: there can be many claims and addresses, and IPClaims are served without them.
type onEveryReplica func() error

// Start implements manager.Runnable.
func (f onEveryReplica) Start(context.Context) error { return f() }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (onEveryReplica) NeedLeaderElection() bool { return false }

// servedPollInterval is the approximate time until the API server serves a kind whose CRD it has
// accepted. Nothing notifies a client when it does.
const servedPollInterval = time.Second

// knownPollInterval is the approximate time to list the Clusters of a cluster that did not have Cluster
// API before.
const knownPollInterval = 100 * time.Millisecond

// Reconcile implements reconcile.Reconciler: a CRD was created or changed. When all CRDs exist, it
// is tried again until all kinds are served, and the Clusters are known. No other code waits for
// these: IPClaims are served as before.
func (a *arrival) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isStarted {
		return reconcile.Result{}, nil
	}
	isInstalled, err := a.isInstalled()
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case !isInstalled && a.isDefined(ctx):
		return reconcile.Result{RequeueAfter: servedPollInterval}, nil
	case !isInstalled:
		return reconcile.Result{}, nil // the next CRD is another event
	}
	if a.areClustersSynced == nil {
		if a.areClustersSynced, err = a.watchClusters(); err != nil {
			return reconcile.Result{}, err
		}
	}
	if !a.areClustersSynced() {
		return reconcile.Result{RequeueAfter: knownPollInterval}, nil
	}
	if err := a.start(); err != nil {
		return reconcile.Result{}, fmt.Errorf("serving IPAddressClaims: %w", err)
	}
	a.isStarted = true
	a.log.Info("Cluster API is installed: serving its IPAddressClaims")
	return reconcile.Result{}, nil
}

// isDefined reports whether all CRDs exist.
func (a *arrival) isDefined(ctx context.Context) bool {
	for _, name := range crdNames() {
		if a.client.Get(ctx, client.ObjectKey{Name: name}, newCRD()) != nil {
			return false
		}
	}
	return true
}

// newCRD returns an empty CRD, of which only the metadata are watched.
func newCRD() *metav1.PartialObjectMetadata {
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	return obj
}

// isInstalled reports whether all kinds are served.
func (a *arrival) isInstalled() (bool, error) {
	for _, gvk := range requiredKinds() {
		_, err := a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if meta.IsNoMatchError(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("asking whether the API server knows %s: %w", gvk.Kind, err)
		}
	}
	return true, nil
}
