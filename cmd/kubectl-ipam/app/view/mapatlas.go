package view

import (
	"net/netip"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// content represents the use of an address of a pool.
type content int

// The uses of an address, in the order of the legend. Mixed and full are for cells of the map
// with several of the others.
const (
	contentFree content = iota
	contentHeld
	contentCarved
	contentRetained
	contentCooling
	contentWithheld
	contentDrained
	contents // the number of constants above

	contentWaiting content = iota
	contentMixed
	contentFull
)

// glyph holds the character for a content, and its text in the legend.
type glyph struct {
	character string
	style     command.Style
	name      string
	text      string
}

func (c content) glyph() glyph {
	return [...]glyph{
		contentFree:     {".", command.Faint, "free", "free"},
		contentHeld:     {"#", command.InUse, "held", "held by a claim"},
		contentCarved:   {"P", command.Good, "carved", "space of a child pool"},
		contentRetained: {"R", command.Warning, "retained", "retained for a later claim"},
		contentCooling:  {"C", command.Warning, "cooling", "cooling down after release"},
		contentWithheld: {"x", command.Withheld, "withheld", "withheld: never handed out"},
		contentDrained:  {"D", command.Bad, "drained", "drained: held, and not handed out again"},
		contentWaiting:  {"W", command.Bad, "waiting", "a claim waits for exactly this block"},
		contentMixed:    {"+", command.Plain, "mixed", "partly free"},
		contentFull:     {"*", command.Plain, "full", "several of these, nothing free"},
	}[c]
}

// atlas holds the use of each address of a pool.
type atlas struct {
	pool *register.Pool
	// blocks holds the recorded blocks by their use, and withheld the same blocks together with
	// all withheld addresses: the difference of the two counts the addresses that are in both.
	blocks, withheld map[content]*space.Space
	// waiting holds the blocks that claims wait for.
	waiting *space.Space
	all     *space.Space
}

func newAtlas(pool *register.Pool) *atlas {
	a := &atlas{
		pool: pool, waiting: space.New(pool.CIDR), all: pool.Space(),
		blocks: map[content]*space.Space{}, withheld: map[content]*space.Space{},
	}
	for _, c := range []content{contentHeld, contentCarved, contentRetained, contentCooling} {
		a.blocks[c], a.withheld[c] = space.New(pool.CIDR), space.NewWithout(pool.CIDR, pool.Withheld)
	}
	for _, record := range pool.Records {
		c := contentOf(record)
		a.blocks[c].Use(record.Block)
		a.withheld[c].Use(record.Block)
	}
	for _, block := range waitedFor(pool) {
		a.waiting.Use(block)
	}
	return a
}

func contentOf(record *register.Record) content {
	switch {
	case record.Purpose == ipam.PurposePool:
		return contentCarved
	case record.State == ipam.StateRetained:
		return contentRetained
	case record.State == ipam.StateCooling:
		return contentCooling
	default:
		return contentHeld
	}
}

// waitedFor returns the blocks of the pool that waiting claims request exactly.
func waitedFor(pool *register.Pool) []netip.Prefix {
	var blocks []netip.Prefix
	for _, claim := range pool.Waiting {
		request, errs := convert.Claim(claim)
		if len(errs) == 0 && request.Block.IsValid() && pool.Has(request.Block) {
			blocks = append(blocks, request.Block)
		}
	}
	return blocks
}

// count counts the addresses of a block of the pool by their use.
func (a *atlas) count(block netip.Prefix) [contents]space.Count {
	var counts [contents]space.Count
	withheld := a.pool.Withheld.SizeIn(block)
	for c, blocks := range a.blocks {
		all := blocks.UsedIn(block)
		drained := all.Add(withheld).Sub(a.withheld[c].UsedIn(block))
		counts[c] = all.Sub(drained)
		counts[contentDrained] = counts[contentDrained].Add(drained)
	}
	counts[contentWithheld] = withheld.Sub(counts[contentDrained])
	counts[contentFree] = space.CountOf(block).Sub(a.all.UsedIn(block))
	return counts
}

// contentOf returns the content as which the map draws a block of the pool.
func (a *atlas) contentOf(block netip.Prefix) content {
	if a.waiting.Overlaps(block) {
		return contentWaiting
	}
	kinds, only := 0, contentFree
	counts := a.count(block)
	for c := range contents {
		if !counts[c].IsZero() {
			kinds++
			only = c
		}
	}
	switch {
	case kinds == 1:
		return only
	case !counts[contentFree].IsZero():
		return contentMixed
	default:
		return contentFull
	}
}

// occupied returns the runs of addresses that are recorded, withheld or waited for, in order.
func (a *atlas) occupied(within space.Range) []space.Range {
	var ranges []space.Range
	for _, record := range a.pool.Records {
		ranges = append(ranges, space.RangeOf(record.Block))
	}
	for _, block := range waitedFor(a.pool) {
		ranges = append(ranges, space.RangeOf(block))
	}
	for r := range a.pool.Withheld.All() {
		ranges = append(ranges, r)
	}
	var clipped []space.Range
	for r := range space.NewRanges(a.pool.CIDR, ranges).All() {
		if r.To.Less(within.From) || within.To.Less(r.From) {
			continue
		}
		if r.From.Less(within.From) {
			r.From = within.From
		}
		if within.To.Less(r.To) {
			r.To = within.To
		}
		clipped = append(clipped, r)
	}
	return clipped
}

// sizeOf returns the number of addresses in a range of the pool.
func (a *atlas) sizeOf(r space.Range) space.Count {
	return space.NewRanges(a.pool.CIDR, []space.Range{r}).Size()
}
