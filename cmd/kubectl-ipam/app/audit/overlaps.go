package audit

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
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
		return cmp.Or(a.Block.Compare(b.Block), cmp.Compare(a.Name.String(), b.Name.String()))
	})
	var around []*Record
	for _, record := range records {
		for len(around) > 0 && !around[len(around)-1].Block.Contains(record.Block.Addr()) {
			around = around[:len(around)-1]
		}
		if len(around) > 0 {
			j.overlap(record, around[len(around)-1])
		}
		around = append(around, record)
	}
}

func (j *judgement) overlap(inner, outer *Record) {
	f := j.add(BlocksOverlap, inner.object(), "%s of %s overlaps %s of %s, both in %s: delete one of the two holders and create it again",
		inner.Block, inner.Holder, outer.Block, outer.Holder, inner.Pool)
	other := outer.object()
	f.Block, f.Other = inner.Block.String(), &other
}

// KindDomain is the kind of a routing domain, which has no object.
const KindDomain = "RoutingDomain"

// domainOf returns the routing domain in which a pool lies; false if that is not known.
func (j *judgement) domainOf(key ipam.PoolKey) (ipam.PoolKey, bool) {
	for range len(j.Pools) + 1 {
		pool := j.poolsBy[key]
		if pool == nil {
			return ipam.PoolKey{}, false
		}
		if key = pool.Home; key.Kind == ipam.PoolKindRoutingDomain {
			return key, true
		}
	}
	return ipam.PoolKey{}, false
}

// domains notes that blocks of claims are handed out in more than one routing domain. It adds one
// note for any number of blocks.
func (j *judgement) domains() {
	var held []register.Held
	for i := range j.Records {
		record := &j.Records[i].Record
		if record.State != ipam.StateBound || record.Holder.IsPool() || j.young[record.Name] {
			continue
		}
		if domain, ok := j.domainOf(record.Pool); ok {
			held = append(held, register.Held{Record: record, Domain: domain})
		}
	}
	pairs := register.Shared(held)
	if len(pairs) == 0 {
		return
	}
	examples := ipam.FormatList(pairs, mostExamples, func(p register.Pair) string {
		return fmt.Sprintf("%s of %s in %s with %s of %s in %s",
			p.Inner.Block, p.Inner.Holder, p.Inner.Domain.FullName(), p.Outer.Block, p.Outer.Holder, p.Outer.Domain.FullName())
	}, "; ")
	f := j.add(BlockInSeveralDomains, domainObject(pairs[0].Outer.Domain),
		"%s with a block of another routing domain: %s: that is as it should be if these networks are never connected; otherwise give their pools one routing domain, or other CIDRs",
		ipam.FormatNumber(len(pairs), "block overlaps", "blocks overlap"), examples)
	other := domainObject(pairs[0].Inner.Domain)
	f.Block, f.Other = pairs[0].Inner.Block.String(), &other
}

func domainObject(key ipam.PoolKey) Object {
	return Object{Kind: KindDomain, Namespace: key.Namespace, Name: key.Name}
}

// mostExamples limits the blocks that a finding about many blocks names.
const mostExamples = 3
