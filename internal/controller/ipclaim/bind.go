package ipclaim

import (
	"context"
	"fmt"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// read reads what the claim asks for.
func read(s *scope) error {
	request, errs := convert.Claim(s.claim)
	s.request = request
	return convert.PolicyError(errs)
}

// askAgain asks whether who made the claim has the right to use its pool by now.
func (c *Controller) askAgain(ctx context.Context, s *scope) (err error) {
	if c.Catalogue.MayBeGranted(s.request) {
		s.request.Granted, s.again, err = c.Asker.Ask(ctx, s.claim, kind, s.request.Pool)
	}
	return err
}

// bind finds a block for a claim that has none, and writes it into the spec.
func (c *Controller) bind(ctx context.Context, s *scope) error {
	resolution, err := c.Resolve(ctx, s.request)
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
	if spec.PoolRef == nil && spec.PoolSelector == nil {
		spec.ClassName = terms.Class
	}
	bits := int32(record.Block.Bits()) //nolint:gosec // 0 to 128
	spec.IPFamily, spec.PrefixLength = v1alpha1.IPFamily(ipam.FamilyOf(record.Block)), &bits
	spec.CIDR, spec.AllocationName = record.Block.String(), record.Name.Name
	if spec.ReclaimPolicy == "" {
		spec.ReclaimPolicy = v1alpha1.ReclaimPolicy(terms.Reclaim)
	}
}
