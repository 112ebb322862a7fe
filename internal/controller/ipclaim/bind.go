package ipclaim

import (
	"cmp"
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// readRequest reads the request of the claim.
func readRequest(s *scope) error {
	request, errs := convert.Claim(s.claim)
	s.request = request
	return convert.PolicyError(errs)
}

// requestGrant asks whether the service account that created the claim can use its pool now.
func (c *Controller) requestGrant(ctx context.Context, s *scope) (err error) {
	if pool, ok := c.Catalog.MayBeGranted(s.request); ok {
		s.request.Grant, s.grantRetry, err = c.Asker.Ask(ctx, s.claim, pool)
	}
	return err
}

// bind finds a block for a claim that has none, and writes it into the spec.
func (c *Controller) bind(ctx context.Context, s *scope) error {
	resolution, err := c.Allocator.Resolve(ctx, s.request)
	if err != nil {
		return err
	}
	record, err := c.Allocator.Allocate(ctx, c.order(s, resolution))
	if err != nil {
		return fmt.Errorf("binding: %w", err)
	}
	fillIn(&s.claim.Spec, resolution.Terms, record)
	s.record = record
	return nil
}

// fillIn writes the block of a record into the spec of its claim, as admission does.
func fillIn(spec *v1alpha1.IPClaimSpec, terms ipam.Terms, record ipam.Record) {
	spec.ClassName = terms.Class       // none if the claim names or selects pools
	bits := int32(record.Block.Bits()) //nolint:gosec // 0 to 128
	spec.IPFamily, spec.PrefixLength = v1alpha1.IPFamily(ipam.FamilyOf(record.Block)), &bits
	spec.CIDR, spec.AllocationName = record.Block.String(), record.Name.Name
	if spec.ReclaimPolicy == "" {
		spec.ReclaimPolicy = v1alpha1.ReclaimPolicy(terms.Reclaim)
	}
}

// verify checks that the record that the claim names holds the claim's block. It records the block
// again if the record is missing: after a restore, or when a user removed the record by force.
func (c *Controller) verify(ctx context.Context, s *scope) error {
	name := ipam.Name{Namespace: s.claim.Namespace, Name: s.claim.Spec.AllocationName}
	record, ok := c.Ledger.Record(name)
	if !ok {
		return c.recordExisting(ctx, s, name)
	}
	holder := convert.HolderOfClaim(s.request.Claim)
	if record.Holder != holder || record.Block != s.request.Block || !record.MayBeOf(string(s.claim.UID)) {
		return &ipam.TakenError{Block: s.request.Block, Pool: record.Pool, Holder: record.Holder, Overlap: record.Block}
	}
	if err := c.Allocator.CheckConfirmed(record); err != nil {
		return err
	}
	s.record = record
	if policy := s.request.Reclaim; policy != "" && policy != record.Reclaim {
		changed, err := c.Allocator.SetReclaimPolicy(ctx, record, policy)
		if err != nil {
			return err
		}
		record, s.record = changed, changed
	}
	if record.Adopted && !record.IsStamped() {
		stamped, err := c.Allocator.Stamp(ctx, record, s.claim)
		if err != nil {
			return err
		}
		s.record = stamped
	}
	if taken := c.Ledger.Conflict(s.record); taken != nil {
		s.conflict = c.Catalog.Redact(s.claim.Namespace, taken).Error() + ": have one of the two released"
	}
	return nil
}

// recordExisting records the block that the claim names, under the record name that it names.
func (c *Controller) recordExisting(ctx context.Context, s *scope, name ipam.Name) error {
	err := c.Live.Get(ctx, client.ObjectKey{Namespace: name.Namespace, Name: name.Name}, &v1alpha1.IPAllocation{})
	if err == nil {
		return errNotSeen
	}
	if !kubeutil.IsNotFound(err) {
		return fmt.Errorf("looking for IPAllocation %s: %w", name, err)
	}
	pool, resolution, err := c.formerPool(ctx, s)
	if err != nil {
		return err
	}
	order := c.order(s, resolution)
	order.Record = name
	if network := s.claim.Status.Network; network != nil {
		order.Gateway = convert.GatewayGiven(network.Gateway)
	}
	s.record, err = c.Allocator.RecordExisting(ctx, order, pool)
	return err
}

// formerPool returns the pool that the claim's block is from: the pool in the status, or else one
// of the pools that the claim can use.
func (c *Controller) formerPool(ctx context.Context, s *scope) (ipam.PoolKey, inventory.Resolution, error) {
	resolution, err := c.Allocator.Resolve(ctx, s.request)
	if ref := s.claim.Status.PoolRef; ref != nil {
		resolution.Terms.Block, resolution.Terms.Length = s.request.Block, s.request.Block.Bits()
		resolution.Terms.Class = s.claim.Spec.ClassName
		resolution.Terms.Reclaim = cmp.Or(s.request.Reclaim, ipam.ReclaimDelete)
		return convert.PoolKey(s.claim.Namespace, *ref), resolution, nil
	}
	if err != nil {
		return ipam.PoolKey{}, resolution, err
	}
	return resolution.Pools[0].Key, resolution, nil
}
