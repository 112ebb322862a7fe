package ipaddressclaim

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cadastre-dev/cadastre/internal/convert"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// release releases the address of a claim that is being deleted (contract, "Deleted
// IPAddressClaim"), once no finalizer of another party marks it as in use. The record is collected
// when the claim is gone, as its class and pool specify.
func (c *Controller) release(ctx context.Context, s *scope) error {
	if c.haltOf(s) != nil || isInUse(s.claim) {
		return nil
	}
	if err := c.readLiveCluster(ctx, s); err != nil || c.haltOf(s) != nil {
		return err
	}
	if err := c.readLiveAddress(ctx, s); err != nil {
		return err
	}
	if s.address != nil && s.address.Spec.PoolRef == s.claim.Spec.PoolRef {
		isDeleted, err := c.deleteAddress(ctx, s)
		if err != nil || !isDeleted {
			return err
		}
	}
	s.markLeaving(c.Ledger) // before the next claim of its sticky key can see that it is gone
	before := s.claim.DeepCopy()
	isRemoved := controllerutil.RemoveFinalizer(s.claim, convert.ReleaseFinalizer(s.claim.Spec.PoolRef.APIGroup))
	if !controllerutil.RemoveFinalizer(s.claim, incluster.FinalizerRelease) && !isRemoved {
		return nil
	}
	return c.writeRemoval(ctx, &c.expectations.claims, before, s.claim, "claim")
}

// markLeaving notes that the records of a claim that is released are about to be released or retained.
func (s *scope) markLeaving(view *ledger.Ledger) {
	for _, record := range view.HeldBy(s.holder()) {
		if record.MayBeOf(string(s.claim.UID)) {
			view.MarkLeaving(record.Name)
		}
	}
}

// readLiveCluster reads the Cluster of a claim again before its release begins, which cannot be
// undone: `clusterctl move` pauses the Cluster and then deletes its claims, and the cache may show
// that in the other order. It keeps the cached state if the API server does not serve the kind any
// more.
func (c *Controller) readLiveCluster(ctx context.Context, s *scope) error {
	if s.cluster == nil || s.address != nil && !s.address.DeletionTimestamp.IsZero() {
		return nil
	}
	cluster, err := clusterOf(ctx, c.Live, s.claim)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil:
		s.cluster = cluster
	}
	return err
}

// writeRemoval stores an object without the finalizers that it had before. It notes that first,
// because the cache may show the former version for a moment.
func (c *Controller) writeRemoval(ctx context.Context, removals *removals, before, obj client.Object, what string) error {
	removals.byName.Store(nameOf(obj), removal{version: before.GetResourceVersion(), at: c.Clock.Now()})
	err := c.Client.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		removals.forget(nameOf(obj))
		return kubeutil.IgnoreNotFound(fmt.Errorf("removing the finalizer of the %s: %w", what, err))
	}
	return nil
}

// readLiveAddress looks for an IPAddress that the cache does not show: its claim must not be removed
// before it.
func (c *Controller) readLiveAddress(ctx context.Context, s *scope) error {
	if s.address != nil {
		return nil
	}
	address := &ipamv1.IPAddress{}
	isFound, err := getIfExists(ctx, c.Live, client.ObjectKeyFromObject(s.claim), address)
	if isFound {
		s.address = address
	}
	return err
}

// deleteAddress deletes the IPAddress, and reports whether it is gone. If it is not gone, the pass
// goes on when the cache shows the next step; the finalizer of another party can keep it.
func (c *Controller) deleteAddress(ctx context.Context, s *scope) (isDeleted bool, err error) {
	if s.address.DeletionTimestamp.IsZero() {
		if err := c.checkOwner(ctx, s); err != nil {
			return false, err
		}
		err := c.Client.Delete(ctx, s.address, client.Preconditions{UID: &s.address.UID})
		if err != nil {
			return kubeutil.IsNotFound(err), kubeutil.IgnoreNotFound(fmt.Errorf("deleting the IPAddress: %w", err))
		}
		return len(s.address.Finalizers) == 0, nil
	}
	err = c.unprotect(ctx, s)
	return len(s.address.Finalizers) == 0, err
}

// checkOwner returns errNotSeen if the IPAddress may belong to the next claim of the name: the
// cache can show it before it shows that this claim is gone. An IPAddress that this claim does not
// own, as after a restore, belongs to this claim as long as the claim is stored.
func (c *Controller) checkOwner(ctx context.Context, s *scope) error {
	if slices.ContainsFunc(s.address.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == s.claim.UID }) {
		return nil
	}
	stored := &ipamv1.IPAddressClaim{}
	err := c.Live.Get(ctx, client.ObjectKeyFromObject(s.claim), stored)
	switch {
	case kubeutil.IsNotFound(err), err == nil && stored.UID != s.claim.UID:
		return errNotSeen
	case err != nil:
		return fmt.Errorf("looking for the claim again: %w", err)
	}
	return nil
}

// hasFormerAddress reports whether the IPAddress was made for another claim of the name, which is
// gone: it is of a pool that is served, has the finalizer, and is from another pool than the claim
// names, whose spec cannot be changed. A leader that was paused can send it long after its claim was released, and no other
// code would delete it.
func (s *scope) hasFormerAddress() bool {
	return s.address != nil && s.address.Spec.PoolRef != s.claim.Spec.PoolRef && s.isOurs(s.address.Spec.PoolRef) &&
		controllerutil.ContainsFinalizer(s.address, convert.ProtectFinalizer(s.address.Spec.PoolRef.APIGroup))
}

// dropFormerAddress deletes the IPAddress that was made for another claim. The claim is served when
// the cache shows that this IPAddress is gone.
func (c *Controller) dropFormerAddress(ctx context.Context, s *scope) error {
	if _, err := c.deleteAddress(ctx, s); err != nil {
		return err
	}
	return errNotSeen
}

// keepAddress records the block of an IPAddress that has no claim. It deletes the IPAddress if its claim
// was removed without release: a user removed the finalizer, or the data of a restore never
// contained the claim. The garbage collector does not delete it, because the pool owns the
// IPAddress too. The removal of the claim must have been seen: a restore can bring back IPAddresses
// long before it brings back their claims. An IPAddress without our finalizer belongs to another
// party, which made it for a future claim.
func (c *Controller) keepAddress(ctx context.Context, s *scope) error {
	recordErr := c.recordExisting(ctx, s)
	if recordErr != nil && s.record.UID == "" {
		return recordErr
	}
	uid, ok := c.expectations.deletedClaim(s.name)
	if !ok || !s.record.MayBeOf(uid) || !controllerutil.ContainsFinalizer(s.address, convert.ProtectFinalizer(s.address.Spec.PoolRef.APIGroup)) {
		return recordErr
	}
	err := c.Live.Get(ctx, client.ObjectKeyFromObject(s.address), &ipamv1.IPAddressClaim{})
	if !kubeutil.IsNotFound(err) {
		return err
	}
	err = c.Client.Delete(ctx, s.address, client.Preconditions{UID: &s.address.UID, ResourceVersion: &s.address.ResourceVersion})
	return kubeutil.IgnoreNotFound(err)
}

// unprotect removes our finalizer from an IPAddress that is being deleted. The cache may not show
// yet that this was done.
func (c *Controller) unprotect(ctx context.Context, s *scope) error {
	before := s.address.DeepCopy()
	if !controllerutil.RemoveFinalizer(s.address, convert.ProtectFinalizer(s.address.Spec.PoolRef.APIGroup)) {
		return nil
	}
	if c.expectations.addresses.last(s.name).isOf(before, c.Clock.Now()) {
		return errNotSeen
	}
	return c.writeRemoval(ctx, &c.expectations.addresses, before, s.address, "IPAddress")
}

// Orphans collects records without holder.
type Orphans interface {
	// Judge registers f as the judge of the records of holders of the kind.
	Judge(kind string, f func(context.Context, client.Reader, ipam.Record) (bool, error))
	// ReportDeleted notes that the holder of the record, of the UID, has been deleted.
	ReportDeleted(uid string, record ipam.Name)
	// Enqueue enqueues a record for judgment if nothing is known of its holder: a record without
	// holder is released after a grace period.
	Enqueue(record ipam.Name)
}

// holds reports whether a record's holder exists: the IPAddress of the claim's name with this
// address, or, while there is no IPAddress, the claim. If a record is being deleted while its claim
// is not, and the claim's status names no address, the record is left over from an interrupted
// release: the claim cannot be served until the record is gone.
func holds(ctx context.Context, reader client.Reader, record ipam.Record) (bool, error) {
	key := client.ObjectKey{Namespace: record.Holder.Namespace, Name: record.Holder.Name}
	address, claim := &ipamv1.IPAddress{}, &ipamv1.IPAddressClaim{}
	err := reader.Get(ctx, key, address)
	if kubeutil.IgnoreNotFound(err) != nil {
		return false, err
	}
	ref := address.Spec.PoolRef
	inUse := err == nil && isAnyTarget(ref) && isInCluster(ref) == record.Pool.Kind.IsInCluster()
	if inUse && !hasAddressOf(address, record) {
		return false, nil
	}
	if inUse && !record.Terminating {
		return true, nil
	}
	if err := reader.Get(ctx, key, claim); err != nil {
		return inUse, kubeutil.IgnoreNotFound(err)
	}
	if record.Terminating && claim.Status.AddressRef.Name == "" && claim.DeletionTimestamp.IsZero() {
		return false, nil
	}
	return inUse || record.MayBeOf(string(claim.UID)), nil
}

// hasAddressOf reports whether an IPAddress has the address of the record.
func hasAddressOf(address *ipamv1.IPAddress, record ipam.Record) bool {
	addr, invalid := convert.AddressInUse(nil, address.Spec.Address)
	return invalid == nil && addr == record.Block.Addr()
}
