package command

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/terminal"
)

// Style is how a text is shown on a terminal: the parameters of an escape sequence (ECMA-48
// section 8.3.117, SGR). Empty: as it is.
type Style string

// The styles, by what they stand for. Whatever a colour says, the text says too.
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

// Paint returns the text with the style, where it is to be painted.
func (s Style) Paint(text string, painted bool) string {
	if s == Plain || !painted || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// Cell is one value of a table.
type Cell struct {
	Text  string
	Style Style
}

// Text is a cell without a style.
func Text(format string, args ...any) Cell { return Cell{Text: fmt.Sprintf(format, args...)} }

// Table is a list of rows in columns, as kubectl prints one.
type Table struct {
	Headers []string
	Rows    [][]Cell
	// empty is said in place of a table without rows.
	Empty string
	// gap is between two columns, in spaces; 0: as in kubectl.
	Gap int
	// footer stands below the rows, such as how much is left out; empty where there is none.
	Footer string
	// below are texts that stand below the rows, by their numbers.
	below map[int]string
	// next is another table, below this one; nil where there is none.
	Next *Table
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

// usualGap is between two columns.
const usualGap = 3

// write writes the table, and those that follow it. Nothing is padded at the end of a line.
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
		header := make([]Cell, len(t.Headers))
		for i, name := range t.Headers {
			header[i] = Cell{Text: name}
		}
		rows, first = append([][]Cell{header}, rows...), 1
	}
	rows = printableRows(rows)
	widths, gap := columnWidths(rows), cmp.Or(t.Gap, usualGap)
	var b strings.Builder
	for n, row := range rows {
		for len(row) > 0 && row[len(row)-1].Text == "" {
			row = row[:len(row)-1]
		}
		for i, c := range row {
			b.WriteString(c.Style.Paint(c.Text, painted))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.Text)+gap))
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

// printableRows are the rows, each text of which is printable.
func printableRows(rows [][]Cell) [][]Cell {
	all := make([][]Cell, len(rows))
	for i, row := range rows {
		all[i] = make([]Cell, len(row))
		for j, c := range row {
			all[i][j] = Cell{Text: terminal.Printable(c.Text), Style: c.Style}
		}
	}
	return all
}

func columnWidths(rows [][]Cell) []int {
	var widths []int
	for _, row := range rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.Text))
		}
	}
	return widths
}

// wrapped is a text in lines of lineWidth columns, indented.
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

// LineWidth is how wide a line of prose is.
const LineWidth = 100

// OrNone returns the text, or a dash if it is empty.
func OrNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
