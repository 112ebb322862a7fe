package ippool

import (
	"net/netip"
	"slices"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// parts returns the pool as one pool for each of its own records. A pool of the in-cluster provider
// leaves out the addresses that other pools have, until these are released, and has an own record for
// each 64 blocks of the others. Any other pool is one part. If no address is left, the error is a
// *ipam.TakenError.
func (c *Controller) parts(s *scope) ([]ipam.Pool, error) {
	if !s.pool.Key.Kind.IsInCluster() {
		return []ipam.Pool{s.pool}, nil
	}
	own, others := c.ownRecordsIn(s.pool)
	var held []netip.Prefix
	for _, record := range others {
		held = append(held, record.Blocks()...)
	}
	taken := convert.Without(s.pool.CIDR, rangesOf(held), own)
	s.leftOut = slices.DeleteFunc(others, func(record ipam.Record) bool { // a record that has lost takes nothing
		return !slices.ContainsFunc(record.Blocks(), taken.Overlaps)
	})
	if len(s.leftOut) > 0 {
		s.retry = recheck
	}
	rest := convert.Without(s.pool.CIDR, slices.Collect(s.pool.Occupied.All()), slices.Collect(taken.All()))
	if rest == nil {
		return nil, &ipam.TakenError{Block: s.leftOut[0].Block, Pool: s.pool.Home, Holder: s.leftOut[0].Holder}
	}
	var parts []ipam.Pool
	for some := range slices.Chunk(ipam.BlocksOf(rest), v1alpha1.MaxRecordBlocks) {
		part := s.pool
		part.Occupied = space.NewRanges(part.CIDR, rangesOf(some))
		parts = append(parts, part)
	}
	return parts, nil
}

// ownRecordsIn returns the own records that have addresses of a pool: of the pool's, what is confirmed,
// and those of other pools.
func (c *Controller) ownRecordsIn(pool ipam.Pool) (own []space.Range, others []ipam.Record) {
	for _, record := range c.Ledger.RecordsIn(pool.Home, pool.Blocks(), maxLeftOut) {
		switch {
		case record.Holder != convert.HolderOfPool(pool.Key):
			others = append(others, record)
		case c.Ledger.CheckConfirmed(record) == nil:
			own = append(own, rangesOf(record.Blocks())...)
		}
	}
	return own, others
}

// maxLeftOut bounds the own records that are looked at: other pools' beyond are in conflict.
const maxLeftOut = 1024

func rangesOf(blocks []netip.Prefix) []space.Range {
	ranges := make([]space.Range, len(blocks))
	for i, block := range blocks {
		ranges[i] = space.RangeOf(block)
	}
	return ranges
}
