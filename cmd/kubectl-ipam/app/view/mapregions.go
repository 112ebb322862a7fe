package view

import (
	"net/netip"
	"slices"

	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// drawRegions draws the occupied regions, each in a separate scale, and the free space between
// them.
func (r *MapReport) drawRegions(a *atlas, drawn space.Range, perLine int) {
	next := drawn.From
	for _, region := range regionsOf(a, drawn) {
		if next.Less(region.From) {
			r.addUniform(a, space.Range{From: next, To: region.From.Prev()}, contentFree)
		}
		r.addRegion(a, region, perLine)
		if next = region.To.Next(); region.To == drawn.To {
			return
		}
	}
	r.addUniform(a, space.Range{From: next, To: drawn.To}, contentFree)
}

// regionsOf returns the occupied runs of addresses. If there are more than mostRegions, it joins
// the runs with the least free space between them into one region.
func regionsOf(a *atlas, drawn space.Range) []space.Range {
	runs := a.occupied(drawn)
	if len(runs) <= mostRegions {
		return runs
	}
	gaps := make([]int, 0, len(runs)-1) // each gap by the index of the run before it
	sizes := make([]space.Count, len(runs))
	for i := range len(runs) - 1 {
		gaps = append(gaps, i)
		sizes[i] = a.sizeOf(space.Range{From: runs[i].To.Next(), To: runs[i+1].From.Prev()})
	}
	slices.SortStableFunc(gaps, func(i, j int) int { return sizes[j].Cmp(sizes[i]) })
	ends := slices.Sorted(slices.Values(gaps[:mostRegions-1]))
	var regions []space.Range
	first := 0
	for _, end := range append(ends, len(runs)-1) {
		regions = append(regions, space.Range{From: runs[first].From, To: runs[end].To})
		first = end + 1
	}
	return regions
}

// addRegion draws a region: with one character if all of it has the same content.
func (r *MapReport) addRegion(a *atlas, region space.Range, perLine int) {
	blocks := blocksOf(region)
	first := a.contentOf(blocks[0])
	if !slices.ContainsFunc(blocks, func(block netip.Prefix) bool { return a.contentOf(block) != first }) && first != contentMixed && first != contentFull {
		r.addUniform(a, region, first)
		return
	}
	r.addLine(a, region, a.exactScale(region, perLine))
}

// exactScale returns the shortest prefix length at which each block has only one kind of
// content, else the longest length at which no more than most blocks cover the region.
func (a *atlas) exactScale(region space.Range, most int) int {
	finest := scaleFor(a, region, most)
	for bits := a.pool.CIDR.Bits(); bits < finest; bits++ {
		isMixed := func(cell netip.Prefix) bool {
			c := a.contentOf(cell)
			return c == contentMixed || c == contentFull
		}
		if !slices.ContainsFunc(cellsOf(region, bits), isMixed) {
			return bits
		}
	}
	return finest
}

// addUniform draws a range that has the same content throughout.
func (r *MapReport) addUniform(a *atlas, part space.Range, c content) {
	r.Lines = append(r.Lines, MapLine{
		From: part.From.String(), Addresses: a.sizeOf(part).String(), PrefixLength: blocksOf(part)[0].Bits(),
		Cells: c.glyph().character, contents: []content{c},
	})
}

// blocksOf returns the fewest blocks that make up a range.
func blocksOf(r space.Range) []netip.Prefix {
	var blocks []netip.Prefix
	for address := r.From; ; {
		block := prefixAt(address, address.BitLen())
		for block.Bits() > 0 {
			larger := prefixAt(address, block.Bits()-1)
			if larger.Addr() != address || r.To.Less(space.RangeOf(larger).To) {
				break
			}
			block = larger
		}
		blocks = append(blocks, block)
		last := space.RangeOf(block).To
		if !last.Less(r.To) {
			return blocks
		}
		address = last.Next()
	}
}

// prefixAt returns the block of a length that contains the address.
func prefixAt(address netip.Addr, length int) netip.Prefix {
	return netip.PrefixFrom(address, length).Masked()
}
