package ipaddressclaim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels/format"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/authorize"
	"github.com/cadastre-dev/cadastre/internal/convert"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// protectClaim puts our finalizer on a claim on which admission has not (contract,
// "Normal IPAddressClaim" 3). It is never called for one that is being deleted.
func (c *Controller) protectClaim(ctx context.Context, s *scope) error {
	before := s.claim.DeepCopy()
	if !controllerutil.AddFinalizer(s.claim, convert.ReleaseFinalizer(s.claim.Spec.PoolRef.APIGroup)) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Client.Patch(ctx, s.claim, authorize.WithoutRequester(s.claim, patch)); err != nil {
		return fmt.Errorf("adding the finalizer: %w", err)
	}
	return nil
}

// retainTimeout is the age up to which a claim waits for the address of a deleted claim of its name or its sticky
// key, which is not retained for it yet. An older one gets another address.
const retainTimeout = 10 * time.Second

// bind finds and records an address for a claim that has none (contract, "Normal
// IPAddressClaim" 4).
func (c *Controller) bind(ctx context.Context, s *scope) error {
	if err := c.checkNew(ctx, s); err != nil {
		return err
	}
	if s.invalid != nil {
		return s.invalid
	}
	if err := c.protectClaim(ctx, s); err != nil {
		return err
	}
	if err := c.requestGrant(ctx, s); err != nil {
		return err
	}
	resolution, err := c.Allocator.Resolve(ctx, s.request)
	if err != nil {
		return err
	}
	order := s.order()
	order.Resolution = resolution
	if c.awaitsRetained(s, order) {
		return errNotSeen
	}
	s.record, err = c.Allocator.Allocate(ctx, order)
	return err
}

// awaitsRetained reports whether the claim is to wait until the address of an earlier claim is retained. The
// change of that record enqueues the claim.
func (c *Controller) awaitsRetained(s *scope, order allocator.Order) bool {
	if c.Clock.Since(s.claim.CreationTimestamp.Time) >= retainTimeout {
		return false
	}
	if order.Sticky != "" { // before the view is asked, so that no change is missed
		c.expectations.unretained.Store(s.name, ipam.Name{Namespace: s.name.Namespace, Name: order.Sticky})
	}
	isRetaining := c.Allocator.IsRetaining(order)
	if !isRetaining {
		c.expectations.unretained.Delete(s.name)
	}
	return isRetaining
}

// requestGrant asks whether the service account that created the claim can use its pool now.
func (c *Controller) requestGrant(ctx context.Context, s *scope) (err error) {
	if pool, ok := c.Catalog.MayBeGranted(s.request); ok {
		s.request.Grant, s.grantRetry, err = c.Asker.Ask(ctx, s.claim, pool)
	}
	return err
}

// bindAndYield binds a claim. If it cannot be bound, allocate decides the effect on its turn.
func (c *Controller) bindAndYield(ctx context.Context, s *scope) error {
	err := c.bind(ctx, s)
	switch {
	case errors.Is(err, errNotSeen), !s.mayWait():
		return err
	case err == nil: // no claim must wait behind it, even if its IPAddress is refused
		c.Queue.Leave(s.holder())
		return nil
	}
	c.Queue.Wait(s.waiter())
	s.retry, err = c.Queue.Yield(s.holder(), err)
	return err
}

// checkNew returns errNotSeen if the claim has a record, or its status names an address, and its
// IPAddress exists and is only missing in the cache.
func (c *Controller) checkNew(ctx context.Context, s *scope) error {
	if s.claim.Status.AddressRef.Name == "" && len(c.Ledger.HeldBy(s.holder())) == 0 {
		return nil
	}
	err := c.Live.Get(ctx, client.ObjectKeyFromObject(s.claim), &ipamv1.IPAddress{})
	switch {
	case err == nil:
		return errNotSeen
	case kubeutil.IsNotFound(err):
		return nil
	}
	return fmt.Errorf("looking for IPAddress %s: %w", s.name, err)
}

// createAddress creates the IPAddress for the address that is held for the claim (contract,
// "Normal IPAddressClaim" 5).
func (c *Controller) createAddress(ctx context.Context, s *scope) error {
	address := &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: s.name.Name},
		Spec: ipamv1.IPAddressSpec{
			ClaimRef: ipamv1.IPAddressClaimReference{Name: s.name.Name},
			PoolRef:  s.claim.Spec.PoolRef,
			Address:  s.record.Block.Addr().String(),
		},
	}
	pool, ok := c.Catalog.Pool(s.record.Pool)
	if !ok {
		return &ipam.MissingError{Reason: v1alpha1.ReasonPoolNotFound, Message: s.record.Pool.String() + " is gone: make it again"}
	}
	if err := c.checkUnused(ctx, s, pool); err != nil {
		return err
	}
	address.Spec.Prefix, address.Spec.Gateway = subnet(pool, s.record)
	if err := c.ensureMetadata(ctx, s, address); err != nil {
		return err
	}
	attempt := creation{since: c.Clock.Now()}
	c.expectations.creations.Store(s.name, attempt)
	err := c.Client.Create(ctx, address)
	c.expectations.settleAddress(s.name, attempt, address.UID, err)
	switch {
	case apierrors.IsAlreadyExists(err):
		return errNotSeen
	case err != nil:
		return fmt.Errorf("creating the IPAddress: %w", err)
	}
	s.address = address
	return nil
}

// checkUnused releases the record of an in-cluster claim, with an error, if another IPAddress in the pool's
// routing domain has the address: it was made by the in-cluster provider or by hand, and could not be
// recorded yet.
func (c *Controller) checkUnused(ctx context.Context, s *scope, pool ipam.Pool) error {
	if !pool.Key.Kind.IsInCluster() {
		return nil
	}
	addresses := &ipamv1.IPAddressList{}
	if err := c.Client.List(ctx, addresses, client.MatchingFields{byAddress: s.record.Block.Addr().String()}); err != nil {
		return fmt.Errorf("looking for other IPAddresses with %s: %w", s.record.Block.Addr(), err)
	}
	for i := range addresses.Items {
		other := &addresses.Items[i]
		ref := other.Spec.PoolRef
		otherPool, ok := c.Catalog.Pool(convert.PoolOfAddress(ref.Kind, other.Namespace, ref.Name))
		if nameOf(other) == s.name || !isInCluster(ref) || !ok || otherPool.Home != pool.Home {
			continue
		}
		taken := &ipam.TakenError{Block: s.record.Block, Pool: pool.Key, Holder: convert.HolderOfAddressClaim(nameOf(other))}
		return c.unrecordedError(s, taken, cmp.Or(c.Allocator.Release(ctx, s.record), error(taken)))
	}
	return nil
}

// unrecordedError returns the error for a claim whose address an IPAddress has that is not recorded.
func (c *Controller) unrecordedError(s *scope, taken *ipam.TakenError, cause error) error {
	return &ipam.ParkedError{
		Reason:  ipamv1.IPAddressClaimReadyAllocationFailedReason,
		Message: fmt.Sprintf("%s, which is not recorded yet: wait until it is tried again by itself", c.conflict(s, taken)), Cause: cause,
	}
}

// subnet returns the prefix length and the gateway to configure with an address. If the record
// states a gateway, it is that one, so that both agree.
func subnet(pool ipam.Pool, record ipam.Record) (*int32, string) {
	bits, gateway := pool.Subnet(record.Block)
	if record.Gateway.IsValid() {
		gateway = record.Gateway
	}
	length := int32(bits) //nolint:gosec // 0 to 128
	if !gateway.IsValid() {
		return &length, ""
	}
	return &length, gateway.String()
}

// ensureMetadata adds to an IPAddress the metadata that a move, a restore or a user may have left
// out: owners, finalizer and labels. It does not change the spec.
func (c *Controller) ensureMetadata(ctx context.Context, s *scope, address *ipamv1.IPAddress) error {
	controllerutil.AddFinalizer(address, convert.ProtectFinalizer(address.Spec.PoolRef.APIGroup))
	if address.Labels == nil {
		address.Labels = map[string]string{}
	}
	cluster := clusterName(s.claim)
	if isInCluster(address.Spec.PoolRef) { // such an IPAddress is as the in-cluster provider makes it
		cluster = s.claim.Labels[clusterv1.ClusterNameLabel]
	} else {
		s.labelPool(address)
	}
	if cluster != "" {
		address.Labels[clusterv1.ClusterNameLabel] = cluster
	}
	pool, err := c.ownerPool(ctx, s.record.Pool)
	if err != nil {
		return err
	}
	address.OwnerReferences = ownerReferences(address.OwnerReferences, s.claim, pool)
	return nil
}

// labelPool writes into an IPAddress its pool and its record.
func (s *scope) labelPool(address *ipamv1.IPAddress) {
	address.Labels[v1alpha1.LabelPool] = format.MustFormatValue(s.record.Pool.Name)
	address.Labels[v1alpha1.LabelPoolKind] = string(s.record.Pool.Kind)
	metav1.SetMetaDataAnnotation(&address.ObjectMeta, v1alpha1.AnnotationAllocation, s.record.Name.Name)
}

// ownerReferences returns the claim, as controller, and the pool; and all former owners. It replaces
// references to an earlier life of either.
func ownerReferences(before []metav1.OwnerReference, claim *ipamv1.IPAddressClaim, pool metav1.OwnerReference) []metav1.OwnerReference {
	otherRefs := slices.DeleteFunc(slices.Clone(before), func(ref metav1.OwnerReference) bool {
		return isClaim(ref, claim) || groupOf(ref.APIVersion) == groupOf(pool.APIVersion) && ref.Kind == pool.Kind
	})
	isControlled := slices.ContainsFunc(otherRefs, func(ref metav1.OwnerReference) bool { return ptr.Deref(ref.Controller, false) })
	version := ipamv1.GroupVersion.String()
	for _, ref := range before {
		if isClaim(ref, claim) && ref.UID == claim.UID {
			version = ref.APIVersion // another one of the group, from the in-cluster provider, says the same
		}
	}
	claimRef := metav1.OwnerReference{
		APIVersion: version, Kind: kind, Name: claim.Name, UID: claim.UID,
		Controller: new(!isControlled), BlockOwnerDeletion: new(true),
	}
	return append([]metav1.OwnerReference{claimRef, pool}, otherRefs...)
}

// ownerPool returns the owner reference to the pool.
func (c *Controller) ownerPool(ctx context.Context, key ipam.PoolKey) (metav1.OwnerReference, error) {
	pool := convert.NewPool(key.Kind)
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, pool); err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("looking for %s: %w", key, err)
	}
	version := v1alpha1.GroupVersion
	if key.Kind.IsInCluster() {
		version = incluster.GroupVersion
	}
	return metav1.OwnerReference{
		APIVersion: version.String(), Kind: string(key.Kind), Name: key.Name, UID: pool.GetUID(),
		Controller: new(false), BlockOwnerDeletion: new(true),
	}, nil
}

// repair adds to the claim's IPAddress the metadata that it lacks.
func (c *Controller) repair(ctx context.Context, s *scope) error {
	if !s.address.DeletionTimestamp.IsZero() {
		return nil // it stays as long as its claim
	}
	before := s.address.DeepCopy()
	if err := c.ensureMetadata(ctx, s, s.address); err != nil {
		return err
	}
	if sameMetadata(before, s.address) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Client.Patch(ctx, s.address, patch); err != nil {
		return fmt.Errorf("adopting the IPAddress: %w", err)
	}
	return nil
}

// sameMetadata reports whether two IPAddresses have the same of the metadata that ensureMetadata
// adds. It ignores the order of owners.
func sameMetadata(a, b *ipamv1.IPAddress) bool {
	return slices.Equal(a.Finalizers, b.Finalizers) &&
		maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		slices.EqualFunc(sortByUID(a.OwnerReferences), sortByUID(b.OwnerReferences), sameOwner)
}

func sortByUID(refs []metav1.OwnerReference) []metav1.OwnerReference {
	return slices.SortedFunc(slices.Values(refs), func(a, b metav1.OwnerReference) int { return cmp.Compare(a.UID, b.UID) })
}

func sameOwner(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID && a.Kind == b.Kind && a.Name == b.Name && a.APIVersion == b.APIVersion &&
		ptr.Deref(a.Controller, false) == ptr.Deref(b.Controller, false) &&
		ptr.Deref(a.BlockOwnerDeletion, false) == ptr.Deref(b.BlockOwnerDeletion, false)
}

// isClaim reports whether an owner is the claim, in whatever life and version.
func isClaim(ref metav1.OwnerReference, claim *ipamv1.IPAddressClaim) bool {
	return ref.Kind == kind && ref.Name == claim.Name && groupOf(ref.APIVersion) == ipamv1.GroupVersion.Group
}
