package audit

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// part represents one block of a record.
type part struct {
	*Record
	block netip.Prefix
}

// overlaps finds the records that overlap another of the same pool or routing domain. It leaves
// out a record that may be under way: the loser of a race overlaps the winner for a moment.
func (j *judgement) overlaps() {
	spaces := map[ipam.PoolKey][]part{}
	for i := range j.Snapshot.Records {
		record := &j.Snapshot.Records[i]
		if j.young[record.Name] {
			continue
		}
		for _, block := range record.Blocks() {
			spaces[record.Pool] = append(spaces[record.Pool], part{record, block})
		}
	}
	for _, parts := range spaces {
		j.overlapsOf(parts)
	}
}

// overlapsOf goes through the blocks of one space. It reports a block with the smallest one that
// contains it, and two records once.
func (j *judgement) overlapsOf(parts []part) {
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(a.block.Compare(b.block), cmp.Compare(a.Name.String(), b.Name.String()))
	})
	reported := map[[2]*Record]bool{}
	for inner, around := range register.Nested(parts, func(p part) netip.Prefix { return p.block }) {
		for _, outer := range slices.Backward(around) {
			if !inner.excludes(outer.Record) {
				continue
			}
			if pair := [2]*Record{inner.Record, outer.Record}; !reported[pair] {
				reported[pair] = true
				j.add(BlocksOverlap, inner.object(), inner.block.String(), "%s of %s overlaps %s of %s, both in %s: delete one of the two holders and create it again",
					inner.block, inner.Holder, outer.block, outer.Holder, inner.Pool).Other = new(outer.object())
			}
			break
		}
	}
}

// excludes reports whether two records that overlap cannot both stay. Two own records of one pool can:
// an edit of its ranges makes the one, and the other is released after that.
func (r *Record) excludes(other *Record) bool {
	isSamePool := r.Purpose == ipam.PurposePool && other.Purpose == ipam.PurposePool && r.Holder == other.Holder
	return !isSamePool || !r.IsStamped() || r.HolderUID != other.HolderUID
}
