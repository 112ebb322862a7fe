package view

import (
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// defaultWidth is the assumed width if there is no terminal.
const defaultWidth = 80

// NewMap returns the command map.
func NewMap(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "map POOL",
		Short: "Draw the address space of a pool",
		Long: `Draw the address space of a pool, in the order of the addresses. Each line begins with an
address, and each character is one address, or in a large pool a block of them: see the
legend below the map. Use --range to see a part of it in more detail.

Of an IPv6 pool the regions with held blocks are drawn, each in its own scale, and the free
space between them.`,
		Example: `  # A pool, and a part of it
  kubectl ipam map nodes
  kubectl ipam map core --range 10.1.0.0/20`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.FirstPool(),
	}
	within := cmd.Flags().String("range", "", "draw only these addresses: a CIDR, or the first and the last one (10.0.0.10-10.0.0.20)")
	command.CompleteWith(cmd, "range", completeRanges(e))
	e.RunReport(cmd, func(cmd *cobra.Command, args []string) (command.Report, error) {
		r, err := e.ReadScope(cmd, scopeOf(args[0]))
		if err != nil {
			return nil, err
		}
		pool, err := drawnPool(e, r, args[0])
		if err != nil {
			return nil, err
		}
		drawn, err := drawnRange(pool, *within)
		if err != nil {
			return nil, command.Coded(command.ExitUsage, err)
		}
		return mapReport(pool, drawn, width(e)), nil
	})
	return cmd
}

// drawnPool finds a pool that has a CIDR.
func drawnPool(e *command.Env, r *register.Register, name string) (*register.Pool, error) {
	pool, err := findPool(e, r, name)
	switch {
	case err != nil:
		return nil, err
	case !pool.IsKnown():
		return nil, command.Coded(command.ExitForbidden, fmt.Errorf("pool %s: you may not get ippools, so its address space is not known: ask for the right to get them", name))
	case !pool.CIDR.IsValid():
		return nil, command.Coded(command.ExitNotFound, fmt.Errorf("pool %s has no CIDR yet: it waits for a block of %s", name, pool.Home))
	}
	return pool, nil
}

// drawnRange reads the flag --range: from the first to the last address of the pool if it is empty.
func drawnRange(pool *register.Pool, text string) (space.Range, error) {
	if text == "" {
		return pool.Span(), nil
	}
	asked, err := convert.Span(field.NewPath("--range"), text)
	switch {
	case err != nil:
		return asked, err
	case asked.To.Less(asked.From):
		return asked, fmt.Errorf("--range=%s ends before it begins: swap the addresses", text)
	case !pool.CIDR.Contains(asked.From) || !pool.CIDR.Contains(asked.To):
		return asked, fmt.Errorf("--range=%s is not inside pool %s, which is %s", text, pool.Key.Name, pool.CIDR)
	}
	return asked, nil
}

// width returns the width of the terminal, in characters.
func width(e *command.Env) int {
	if file, ok := e.Out.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return defaultWidth
}

// completeRanges offers the CIDRs of the child pools.
func completeRanges(e *command.Env) cobra.CompletionFunc {
	return completeOfPool(e, func(pool *register.Pool) (blocks []string) {
		for _, record := range pool.Records {
			if record.Purpose == ipam.PurposePool {
				blocks = append(blocks, record.Block.String())
			}
		}
		return blocks
	})
}

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

	// contentOutside is no use of the pool: it does not hold these addresses of its CIDR.
	contentOutside content = iota

	contentWaiting
	contentMixed
	contentFull
)

// glyph holds the character for a content, and its text in the legend.
type glyph struct {
	character string
	style     command.Style
	text      string
}

func (c content) glyph() glyph {
	return [...]glyph{
		contentFree:     {".", command.Faint, "free"},
		contentHeld:     {"#", command.InUse, "held by a claim"},
		contentCarved:   {"P", command.Good, "space of a child pool"},
		contentRetained: {"R", command.Warning, "retained for a later claim"},
		contentCooling:  {"C", command.Warning, "cooling down after release"},
		contentWithheld: {"x", command.Withheld, "withheld: never handed out"},
		contentDrained:  {"D", command.Bad, "drained: held, and not handed out again"},
		contentOutside:  {"-", command.Faint, "not of this pool"},
		contentWaiting:  {"W", command.Bad, "a claim waits for exactly this block"},
		contentMixed:    {"+", command.Plain, "partly free"},
		contentFull:     {"*", command.Plain, "several of these, nothing free"},
	}[c]
}

// isSeveral reports whether a cell of the map has several uses.
func (c content) isSeveral() bool { return c == contentMixed || c == contentFull }

// atlas holds the use of each address of a pool.
type atlas struct {
	pool *register.Pool
	// blocks holds the recorded blocks by their use, and withheld the same blocks together with
	// all withheld addresses: the difference of the two counts the addresses that are in both.
	blocks, withheld map[content]*space.Space
	// others has all blocks and the addresses that the pool does not hold in use, and recorded has
	// all blocks.
	others, recorded *space.Space
	// waitedFor lists the blocks that claims wait for, and waiting has them in use.
	waitedFor []netip.Prefix
	waiting   *space.Space
	all       *space.Space
}

func newAtlas(pool *register.Pool) *atlas {
	a := &atlas{
		pool: pool, waitedFor: waitedFor(pool), waiting: space.New(pool.CIDR), all: pool.Space(),
		blocks: map[content]*space.Space{}, withheld: map[content]*space.Space{},
		others: pool.RecordedSpace(), recorded: space.New(pool.CIDR),
	}
	for _, c := range []content{contentHeld, contentCarved, contentRetained, contentCooling} {
		a.blocks[c], a.withheld[c] = space.New(pool.CIDR), space.NewWithout(pool.CIDR, pool.Withheld)
	}
	for _, record := range pool.Records {
		c := contentOf(record)
		a.blocks[c].Use(record.Block)
		a.withheld[c].Use(record.Block)
		a.recorded.Use(record.Block)
	}
	for _, block := range a.waitedFor {
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

// count counts the addresses of the pool in a block of its CIDR by their use.
func (a *atlas) count(block netip.Prefix) [contents]space.Count {
	var counts [contents]space.Count
	withheld := a.pool.Withheld.SizeIn(block)
	for c, blocks := range a.blocks {
		all := blocks.UsedIn(block)
		drained := all.Add(withheld).Sub(a.withheld[c].UsedIn(block))
		counts[c] = all.Sub(drained)
		counts[contentDrained] = counts[contentDrained].Add(drained)
	}
	outside := a.others.UsedIn(block).Sub(a.recorded.UsedIn(block))
	counts[contentWithheld] = withheld.Sub(counts[contentDrained]).Sub(outside)
	counts[contentFree] = space.CountOf(block).Sub(a.all.UsedIn(block))
	return counts
}

// contentOf returns the content as which the map draws a block of the pool.
func (a *atlas) contentOf(block netip.Prefix) content {
	if a.waiting.Overlaps(block) {
		return contentWaiting
	}
	kinds, only := 0, contentFree // what is outside of the pool is no kind
	counts := a.count(block)
	for c := range contents {
		if !counts[c].IsZero() {
			kinds++
			only = c
		}
	}
	switch {
	case kinds == 0:
		return contentOutside
	case kinds == 1:
		return only
	case !counts[contentFree].IsZero():
		return contentMixed
	default:
		return contentFull
	}
}

// occupied returns the runs of addresses that are recorded, withheld or waited for, in order.
func (a *atlas) occupied(bounds space.Range) []space.Range {
	var ranges []space.Range
	for _, record := range a.pool.Records {
		ranges = append(ranges, space.RangeOf(record.Block))
	}
	for _, block := range a.waitedFor {
		ranges = append(ranges, space.RangeOf(block))
	}
	ranges = slices.AppendSeq(ranges, a.pool.Withheld.All())
	var clipped []space.Range
	for r := range space.NewRanges(a.pool.CIDR, ranges).All() {
		r.From = slices.MaxFunc([]netip.Addr{r.From, bounds.From}, netip.Addr.Compare)
		r.To = slices.MinFunc([]netip.Addr{r.To, bounds.To}, netip.Addr.Compare)
		if !r.To.Less(r.From) {
			clipped = append(clipped, r)
		}
	}
	return clipped
}

// sizeOf returns the number of addresses in a range of the pool.
func (a *atlas) sizeOf(r space.Range) space.Count {
	return space.NewRanges(a.pool.CIDR, []space.Range{r}).Size()
}
