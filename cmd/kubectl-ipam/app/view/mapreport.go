package view

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

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

	glyph glyph
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
	for len(cells) > 0 {
		line := cells[:min(perLine, len(cells))]
		cells = cells[len(line):]
		part := space.Range{From: line[0].Addr(), To: space.RangeOf(line[len(line)-1]).To}
		r.addLine(a, part, scale)
	}
}

// scaleFor returns the longest prefix length at which no more than most blocks cover a range.
func scaleFor(a *atlas, drawn space.Range, most int) int {
	bits := drawn.From.BitLen()
	for ; bits > a.pool.CIDR.Bits(); bits-- {
		if atMost(drawn, bits, most) {
			break
		}
	}
	return bits
}

// atMost reports whether no more than most blocks of a length cover a range.
func atMost(r space.Range, length, most int) bool {
	address := r.From
	for range most {
		last := space.RangeOf(prefixAt(address, length)).To
		if !last.Less(r.To) {
			return true
		}
		address = last.Next()
	}
	return false
}

// addLine draws a range in a scale.
func (r *MapReport) addLine(a *atlas, part space.Range, scale int) {
	line := MapLine{From: part.From.String(), Addresses: a.sizeOf(part).String(), PrefixLength: scale}
	var b strings.Builder
	for _, cell := range cellsOf(part, scale) {
		c := a.contentOf(cell)
		line.contents = append(line.contents, c)
		b.WriteString(c.glyph().character)
	}
	line.Cells = b.String()
	r.Lines = append(r.Lines, line)
}

// addLegend explains the drawn characters, and counts their addresses.
func (r *MapReport) addLegend(a *atlas, drawn space.Range) {
	shown := map[content]bool{}
	for _, line := range r.Lines {
		for _, c := range line.contents {
			shown[c] = true
		}
	}
	for c, count := range a.countIn(drawn) {
		if kind := content(c); shown[kind] || !count.IsZero() {
			r.Legend = append(r.Legend, legendOf(kind, count.String()))
		}
	}
	for _, kind := range []content{contentWaiting, contentMixed, contentFull} {
		if shown[kind] {
			r.Legend = append(r.Legend, legendOf(kind, ""))
		}
	}
}

func legendOf(c content, addresses string) LegendEntry {
	g := c.glyph()
	return LegendEntry{Character: g.character, Meaning: g.text, Addresses: addresses, glyph: g}
}

// countIn counts the addresses of a range by their use.
func (a *atlas) countIn(r space.Range) [contents]space.Count {
	var sums [contents]space.Count
	for _, block := range blocksOf(r) {
		for c, n := range a.count(block) {
			sums[c] = sums[c].Add(n)
		}
	}
	return sums
}

// Names implements command.Report.
func (r *MapReport) Names() []string {
	return []string{strings.ToLower(r.Pool.Kind) + "/" + r.Pool.Name}
}

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
		line := r.Lines[i]
		drawn := command.Cell{Text: line.paint(painted)}
		if !r.regions {
			t.Add(command.Text("%s", line.From), drawn)
			if same := r.sameAfter(i); same > 1 {
				t.Add(command.Text("..."), command.Cell{Text: fmt.Sprintf("%d more such lines", same), Style: command.Faint})
				i += same
			}
			continue
		}
		t.Add(command.Text("%s", line.From), number(line.Addresses), command.Text("%s", eachIn(line)), drawn)
	}
	_ = t.Write(&b, painted, true) // to memory
	b.WriteByte('\n')
	legend := &command.Table{Gap: 2}
	for _, entry := range r.Legend {
		n := ""
		if entry.Addresses != "" {
			n = number(entry.Addresses).Text
		}
		legend.Add(command.Cell{Text: entry.Character, Style: entry.glyph.style}, command.Text("%s", entry.Meaning), command.Text("%s", n))
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

// eachIn returns the prefix length that a character of a region stands for, or "-".
func eachIn(line MapLine) string {
	if len(line.contents) == 1 {
		return "-"
	}
	return fmt.Sprintf("/%d", line.PrefixLength)
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
