package command

import (
	"cmp"
	"fmt"
	"io"
	"math/big"
	"strings"
	"unicode/utf8"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/terminal"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// Style represents the style of a text on a terminal: the parameters of an escape sequence
// (ECMA-48 section 8.3.117, SGR). The empty style shows the text as it is.
type Style string

// The styles, by their meaning. The text always states the meaning of a color too.
const (
	Plain    Style = ""
	Strong   Style = "1"
	Faint    Style = "2"
	Good     Style = "32"
	Warning  Style = "33"
	Bad      Style = "31"
	InUse    Style = "36"
	Withheld Style = "35"
)

// Paint returns the text, with the style if painted is set.
func (s Style) Paint(text string, painted bool) string {
	if s == Plain || !painted || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// Cell represents one value of a table.
type Cell struct {
	Text  string
	Style Style
}

// Text returns a cell without a style.
func Text(format string, args ...any) Cell { return Cell{Text: fmt.Sprintf(format, args...)} }

// Texts returns a cell for each text; a dash for an empty one.
func Texts(texts ...string) []Cell {
	cells := make([]Cell, len(texts))
	for i, text := range texts {
		cells[i].Text = OrNone(text)
	}
	return cells
}

// Table represents a list of rows in columns, as kubectl prints one.
type Table struct {
	Headers []string
	Rows    [][]Cell
	// Empty is the text in place of a table without rows.
	Empty string
	// Gap is the gap between two columns, in spaces; 0 means as in kubectl.
	Gap int
	// Footer is the text below the rows, such as the number of omitted rows; empty if there is
	// none.
	Footer string
	// below holds the texts below single rows, by the index of the row.
	below map[int]string
	// Next is another table, below this one; nil if there is none.
	Next *Table
}

// Line returns a table of one cell, without headers.
func Line(format string, args ...any) *Table {
	return &Table{Rows: [][]Cell{{Text(format, args...)}}}
}

// Add appends a row.
func (t *Table) Add(cells ...Cell) { t.Rows = append(t.Rows, cells) }

// Explain adds a text below the last row.
func (t *Table) Explain(text string) {
	if t.below == nil {
		t.below = map[int]string{}
	}
	t.below[len(t.Rows)-1] = text
}

// usualGap is the usual gap between two columns, in spaces.
const usualGap = 3

// Write writes the table, and the tables that follow it. It adds no padding at the end of a line.
func (t *Table) Write(out io.Writer, painted, headers bool) error {
	if err := t.writeOne(out, painted, headers); err != nil || t.Next == nil {
		return err
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	return t.Next.Write(out, painted, headers)
}

func (t *Table) writeOne(out io.Writer, painted, headers bool) error {
	if len(t.Rows) == 0 {
		_, err := fmt.Fprintln(out, t.Empty)
		return err
	}
	rows, first := t.Rows, 0
	if headers && len(t.Headers) > 0 {
		var header []Cell
		for _, name := range t.Headers {
			header = append(header, Cell{Text: name})
		}
		rows, first = append([][]Cell{header}, rows...), 1
	}
	widths, gap := columnWidths(rows), cmp.Or(t.Gap, usualGap)
	var b strings.Builder
	for n, row := range rows {
		for len(row) > 0 && row[len(row)-1].Text == "" {
			row = row[:len(row)-1]
		}
		for i, c := range row {
			text := terminal.Printable(c.Text)
			b.WriteString(c.Style.Paint(text, painted))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)+gap))
			}
		}
		b.WriteByte('\n')
		if text := t.below[n-first]; text != "" {
			b.WriteString(wrapped(terminal.Printable(text)))
		}
	}
	if t.Footer != "" {
		b.WriteString(terminal.PrintableLines(t.Footer) + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func columnWidths(rows [][]Cell) []int {
	var widths []int
	for _, row := range rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(terminal.Printable(c.Text)))
		}
	}
	return widths
}

// wrapped returns a text in lines of LineWidth columns, indented.
func wrapped(text string) string {
	var b strings.Builder
	const indent = "  "
	width := 0
	for word := range strings.FieldsSeq(text) {
		switch length := utf8.RuneCountInString(word); {
		case width == 0:
			b.WriteString(indent + word)
			width = len(indent) + length
		case width+1+length > LineWidth:
			b.WriteString("\n" + indent + word)
			width = len(indent) + length
		default:
			b.WriteString(" " + word)
			width += 1 + length
		}
	}
	b.WriteByte('\n')
	return b.String()
}

// LineWidth is the width of a line of prose, in columns.
const LineWidth = 100

// OrNone returns the text, or a dash if it is empty.
func OrNone(text string) string { return cmp.Or(text, "-") }

// exactDigits limits the digits of a number in a table.
const exactDigits = 12

// Readable returns a number of addresses for people: exact if it is short, else as a power of two
// if it is one, else rounded to two digits. Reports for programs are always exact.
func Readable(n space.Count) string {
	exact := n.String()
	if len(exact) <= exactDigits {
		return exact
	}
	number, _ := new(big.Int).SetString(exact, 10)
	if power := number.BitLen() - 1; new(big.Int).SetBit(new(big.Int), power, 1).Cmp(number) == 0 {
		return fmt.Sprintf("2^%d", power)
	}
	return fmt.Sprintf("%.1e", n.Float64())
}

// Percent returns a share for people. It is 0% only if there is nothing, and 100% only if there
// is all.
func Percent(part, total space.Count) string {
	switch share := part.Float64() / total.Float64(); {
	case part.IsZero() || total.IsZero():
		return "0%"
	case part.Cmp(total) >= 0:
		return "100%"
	case share < 0.01:
		return "<1%"
	case share > 0.99:
		return ">99%"
	default:
		return fmt.Sprintf("%d%%", part.Percent(total))
	}
}

// AddressesOf returns a number of addresses with the noun.
func AddressesOf(n space.Count) string {
	if n == space.CountOf64(1) {
		return "1 address"
	}
	return Readable(n) + " addresses"
}
