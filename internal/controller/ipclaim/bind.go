package ipclaim

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// read reads what the claim asks for.
func read(s *scope) error {
	request, errs := adapt.Claim(s.claim)
	s.request = request
	if len(errs) > 0 {
		return &ipam.PolicyError{Field: errs[0].Field, Value: errs[0].BadValue, Remedy: errs[0].Detail}
	}
	return nil
}

// bind finds a block for a claim that has none, and writes it in.
func (c *Controller) bind(ctx context.Context, s *scope) error {
	resolution, err := c.Allocator.Resolve(s.request)
	if err != nil {
		return err
	}
	order := c.order(s, resolution)
	record, err := c.Allocator.Bind(ctx, order)
	if err != nil {
		return fmt.Errorf("binding: %w", err)
	}
	if err := c.writeIn(ctx, s, resolution.Terms, record); err != nil {
		return err
	}
	s.record = record
	return nil
}

func (c *Controller) order(s *scope, resolution allocator.Resolution) allocator.Order {
	order := allocator.Order{
		Resolution: resolution,
		Holder:     allocator.HolderOfClaim(s.request.Claim),
		HolderUID:  string(s.claim.UID),
	}
	order.Waiting = allocator.Waiting{Since: s.claim.CreationTimestamp.Time, Holder: order.Holder, Request: s.request}
	return order
}

// writeIn names the block in the claim, if the claim is still as it was read.
// Otherwise the record is found again in the next pass, or collected.
func (c *Controller) writeIn(ctx context.Context, s *scope, terms ipam.Terms, record ipam.Record) error {
	before := s.claim.DeepCopy()
	spec := &s.claim.Spec
	if spec.PoolRef == nil && spec.PoolSelector == nil {
		spec.ClassName = terms.Class
	}
	bits := int32(record.Block.Bits()) //nolint:gosec // 0 to 128
	spec.IPFamily, spec.PrefixLength = v1alpha1.IPFamily(ipam.FamilyOf(record.Block)), &bits
	spec.CIDR, spec.AllocationName = record.Block.String(), record.Name.Name
	if spec.ReclaimPolicy == "" {
		spec.ReclaimPolicy = v1alpha1.ReclaimPolicy(terms.Reclaim)
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Client.Patch(ctx, s.claim, patch); err != nil {
		return fmt.Errorf("writing %s into the claim: %w", record.Block, err)
	}
	return nil
}
