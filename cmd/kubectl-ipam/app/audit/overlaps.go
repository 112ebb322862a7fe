package audit

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// overlaps finds the records that overlap another of the same pool or routing domain. It leaves
// out a record that may be under way: the loser of a race overlaps the winner for a moment.
func (j *judgement) overlaps() {
	spaces := map[ipam.PoolKey][]*Record{}
	for i := range j.Snapshot.Records {
		if record := &j.Snapshot.Records[i]; !j.young[record.Name] {
			spaces[record.Pool] = append(spaces[record.Pool], record)
		}
	}
	for _, records := range spaces {
		j.overlapsOf(records)
	}
}

// overlapsOf goes through the blocks of one space, the larger ones first if they begin at the
// same address. Blocks contain each other or are apart, so the blocks that contain the present
// one form a stack. It reports a block with the smallest one that contains it.
func (j *judgement) overlapsOf(records []*Record) {
	slices.SortFunc(records, func(a, b *Record) int {
		return cmp.Or(a.Block.Addr().Compare(b.Block.Addr()), cmp.Compare(a.Block.Bits(), b.Block.Bits()), cmp.Compare(a.Name.String(), b.Name.String()))
	})
	var around []*Record
	for _, record := range records {
		for len(around) > 0 && !contains(around[len(around)-1].Block, record.Block) {
			around = around[:len(around)-1]
		}
		if len(around) > 0 {
			j.overlap(record, around[len(around)-1])
		}
		around = append(around, record)
	}
}

func contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

func (j *judgement) overlap(inner, outer *Record) {
	f := j.add(BlocksOverlap, inner.object(), "%s of %s overlaps %s of %s, both in %s: delete one of the two holders and create it again",
		inner.Block, inner.Holder, outer.Block, outer.Holder, inner.Pool)
	other := outer.object()
	f.Block, f.Other = inner.Block.String(), &other
}
