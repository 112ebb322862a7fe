package view

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

const (
	// mostLines limits the drawn lines; beyond it a character stands for more addresses.
	mostLines = 32
	// widestLine limits the map characters of a line.
	widestLine = 128
	// mostRegions limits the drawn regions of an IPv6 pool; beyond it the nearest regions are
	// drawn as one.
	mostRegions = 24
	// regionLength limits the characters of a region.
	regionLength = 32
	// plainSize limits the number of IPv6 addresses that are drawn like IPv4 addresses.
	plainSize = 1 << 16
)

// MapReport represents the output of `map`.
type MapReport struct {
	metav1.TypeMeta `json:",inline"`
	Pool            command.ObjectRef `json:"pool"`
	CIDR            string            `json:"cidr"`
	// From and To are the first and the last drawn address.
	From string `json:"from"`
	To   string `json:"to"`
	// Legend explains the characters. Counts are of addresses, decimal strings; the addresses of
	// blocks that a claim waits for count as the kind that they are otherwise.
	Legend []LegendEntry `json:"legend"`
	// Lines holds the map. The lines together cover all addresses from From to To.
	Lines []MapLine `json:"lines"`

	regions bool
	each    netip.Prefix // the block that a character of the first line stands for
}

// LegendEntry represents a character of the map.
type LegendEntry struct {
	Character string `json:"character"`
	Meaning   string `json:"meaning"`
	// Addresses is a decimal string; empty for characters that stand for several kinds.
	Addresses string `json:"addresses,omitempty"`

	style command.Style
}

// MapLine represents a line of the map.
type MapLine struct {
	From string `json:"from"`
	// Addresses is the number of addresses on the line, a decimal string.
	Addresses string `json:"addresses"`
	// PrefixLength is the length of the block that a character stands for. A line of one
	// character stands for all of its addresses, whatever their number.
	PrefixLength int    `json:"prefixLength"`
	Cells        string `json:"cells"`

	contents []content
}

// mapReport draws a part of a pool for a terminal of the width.
func mapReport(pool *register.Pool, drawn space.Range, width int) *MapReport {
	report := &MapReport{
		TypeMeta: command.ReportType("MapReport"), Pool: command.RefOfPool(pool.Key), CIDR: pool.CIDR.String(),
		From: drawn.From.String(), To: drawn.To.String(),
	}
	a := newAtlas(pool)
	if size := a.sizeOf(drawn); pool.Family == ipam.IPv4 || size.Cmp(space.CountOf64(plainSize)) <= 0 {
		report.drawPlain(a, drawn, lineLength(drawn, width))
	} else {
		report.regions = true
		report.drawRegions(a, drawn, regionLength)
	}
	report.addLegend(a, drawn)
	return report
}

// lineLength returns the number of map characters that fit after an address: a power of two.
func lineLength(drawn space.Range, width int) int {
	room := width - max(len(drawn.From.String()), len(drawn.To.String())) - 1
	length := widestLine
	for length > 8 && length > room {
		length /= 2
	}
	return length
}

// drawPlain draws all addresses with characters of one scale.
func (r *MapReport) drawPlain(a *atlas, drawn space.Range, perLine int) {
	scale := scaleFor(a, drawn, perLine*mostLines)
	cells := cellsOf(drawn, scale)
	r.each = cells[0]
	for line := range slices.Chunk(cells, perLine) {
		r.addCells(a, space.Range{From: line[0].Addr(), To: space.RangeOf(line[len(line)-1]).To}, scale)
	}
}

// scaleFor returns the longest prefix length at which no more than most blocks cover a range.
func scaleFor(a *atlas, drawn space.Range, most int) int {
	bits := drawn.From.BitLen()
	for bits > a.pool.CIDR.Bits() && len(firstCells(drawn, bits, most+1)) > most {
		bits--
	}
	return bits
}

// cellsOf returns the blocks of a length that have an address of the range, in order.
func cellsOf(r space.Range, length int) []netip.Prefix { return firstCells(r, length, math.MaxInt) }

// firstCells returns the first of the blocks that cellsOf returns, no more than most of them.
func firstCells(r space.Range, length, most int) []netip.Prefix {
	var cells []netip.Prefix
	for address := r.From; len(cells) < most; {
		cell := netip.PrefixFrom(address, length).Masked()
		cells = append(cells, cell)
		last := space.RangeOf(cell).To
		if !last.Less(r.To) {
			break
		}
		address = last.Next()
	}
	return cells
}

// addCells draws a range in a scale.
func (r *MapReport) addCells(a *atlas, part space.Range, scale int) {
	var drawn []content
	for _, cell := range cellsOf(part, scale) {
		drawn = append(drawn, a.contentOf(cell))
	}
	r.addLine(a, part, scale, drawn...)
}

// addUniform draws a range that has the same content throughout.
func (r *MapReport) addUniform(a *atlas, part space.Range, c content) {
	r.addLine(a, part, blocksOf(part)[0].Bits(), c)
}

func (r *MapReport) addLine(a *atlas, part space.Range, scale int, drawn ...content) {
	var cells strings.Builder
	for _, c := range drawn {
		cells.WriteString(c.glyph().character)
	}
	r.Lines = append(r.Lines, MapLine{
		From: part.From.String(), Addresses: a.sizeOf(part).String(), PrefixLength: scale, Cells: cells.String(), contents: drawn,
	})
}

// addLegend explains the drawn characters, and counts their addresses.
func (r *MapReport) addLegend(a *atlas, drawn space.Range) {
	shown := map[content]bool{}
	for _, line := range r.Lines {
		for _, c := range line.contents {
			shown[c] = true
		}
	}
	var sums [contents]space.Count
	for _, block := range blocksOf(drawn) {
		for c, n := range a.count(block) {
			sums[c] = sums[c].Add(n)
		}
	}
	add := func(c content, addresses string) {
		g := c.glyph()
		r.Legend = append(r.Legend, LegendEntry{Character: g.character, Meaning: g.text, Addresses: addresses, style: g.style})
	}
	for c, sum := range sums {
		if kind := content(c); shown[kind] || !sum.IsZero() {
			add(kind, sum.String())
		}
	}
	for _, kind := range []content{contentOutside, contentWaiting, contentMixed, contentFull} {
		if shown[kind] {
			add(kind, "")
		}
	}
}

// Names implements command.Report.
func (r *MapReport) Names() []string { return []string{r.Pool.Argument()} }

// Table implements command.Report.
func (r *MapReport) Table(bool) *command.Table { return &command.Table{} }

// Draw returns the map for people.
func (r *MapReport) Draw(painted bool) string {
	var b strings.Builder
	t := &command.Table{Gap: 1}
	if r.regions {
		t = &command.Table{Headers: []string{"FROM", "ADDRESSES", "EACH", "MAP"}}
	} else {
		fmt.Fprintf(&b, "%s, %s to %s, each character is %s\n\n", r.Pool.FullName(), r.From, r.To, eachOf(r.each))
	}
	for i := 0; i < len(r.Lines); i++ {
		line := &r.Lines[i]
		from, drawn := command.Cell{Text: line.From}, command.Cell{Text: line.paint(painted)}
		if r.regions {
			t.Add(from, number(line.Addresses), command.Cell{Text: line.each()}, drawn)
			continue
		}
		t.Add(from, drawn)
		if same := r.sameAfter(i); same > 1 {
			t.Add(command.Cell{Text: "..."}, command.Cell{Text: fmt.Sprintf("%d more such lines", same), Style: command.Faint})
			i += same
		}
	}
	_ = t.Write(&b, painted, true) // to memory
	b.WriteByte('\n')
	legend := &command.Table{Gap: 2}
	for _, entry := range r.Legend {
		cells := []command.Cell{{Text: entry.Character, Style: entry.style}, {Text: entry.Meaning}}
		if entry.Addresses != "" {
			cells = append(cells, number(entry.Addresses))
		}
		legend.Add(cells...)
	}
	_ = legend.Write(&b, painted, true) // to memory
	return b.String()
}

// sameAfter returns the number of lines after a line that are equal to it, if all of its
// characters are the same, else 0. The last line does not count.
func (r *MapReport) sameAfter(line int) int {
	cells := r.Lines[line].Cells
	if strings.Trim(cells, cells[:1]) != "" {
		return 0
	}
	same := 0
	for next := line + 1; next < len(r.Lines)-1 && r.Lines[next].Cells == cells; next++ {
		same++
	}
	return same
}

// paint returns the map of a line, in runs of one color.
func (l *MapLine) paint(painted bool) string {
	var b strings.Builder
	for i := 0; i < len(l.contents); {
		run := i
		for i < len(l.contents) && l.contents[i] == l.contents[run] {
			i++
		}
		g := l.contents[run].glyph()
		b.WriteString(g.style.Paint(strings.Repeat(g.character, i-run), painted))
	}
	return b.String()
}

// eachOf describes the block that a character stands for.
func eachOf(cell netip.Prefix) string {
	if cell.IsSingleIP() {
		return "one address"
	}
	return fmt.Sprintf("a /%d: %s", cell.Bits(), command.AddressesOf(space.CountOf(cell)))
}

// each returns the prefix length that a character of a region stands for, or "-".
func (l *MapLine) each() string {
	if len(l.contents) == 1 {
		return "-"
	}
	return fmt.Sprintf("/%d", l.PrefixLength)
}

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
	isOther := func(block netip.Prefix) bool { return a.contentOf(block) != first }
	if first.isSeveral() || slices.ContainsFunc(blocks, isOther) {
		r.addCells(a, region, a.exactScale(region, perLine))
		return
	}
	r.addUniform(a, region, first)
}

// exactScale returns the shortest prefix length at which each block has only one kind of
// content, else the longest length at which no more than most blocks cover the region.
func (a *atlas) exactScale(region space.Range, most int) int {
	finest := scaleFor(a, region, most)
	for bits := a.pool.CIDR.Bits(); bits < finest; bits++ {
		if !slices.ContainsFunc(cellsOf(region, bits), func(cell netip.Prefix) bool { return a.contentOf(cell).isSeveral() }) {
			return bits
		}
	}
	return finest
}

// blocksOf returns the fewest blocks that make up a range.
func blocksOf(r space.Range) []netip.Prefix { return netipx.IPRangeFrom(r.From, r.To).Prefixes() }
