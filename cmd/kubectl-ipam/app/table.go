package app

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/terminal"
)

// style is how a text is shown on a terminal: the parameters of an escape sequence (ECMA-48
// section 8.3.117, SGR). Empty: as it is.
type style string

// The styles, by what they stand for. Whatever a colour says, the text says too.
const (
	plain    style = ""
	strong   style = "1"
	faint    style = "2"
	good     style = "32"
	warning  style = "33"
	bad      style = "31"
	inUse    style = "36"
	withheld style = "35"
)

// paint returns the text with the style, where it is to be painted.
func (s style) paint(text string, painted bool) string {
	if s == plain || !painted || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// cell is one value of a table.
type cell struct {
	text  string
	style style
}

// text is a cell without a style.
func text(format string, args ...any) cell { return cell{text: fmt.Sprintf(format, args...)} }

// table is a list of rows in columns, as kubectl prints one.
type table struct {
	headers []string
	rows    [][]cell
	// empty is said in place of a table without rows.
	empty string
	// gap is between two columns, in spaces; 0: as in kubectl.
	gap int
	// footer stands below the rows, such as how much is left out; empty where there is none.
	footer string
	// below are texts that stand below the rows, by their numbers.
	below map[int]string
	// next is another table, below this one; nil where there is none.
	next *table
}

// add appends a row.
func (t *table) add(cells ...cell) { t.rows = append(t.rows, cells) }

// explain adds a text below the last row.
func (t *table) explain(text string) {
	if t.below == nil {
		t.below = map[int]string{}
	}
	t.below[len(t.rows)-1] = text
}

// usualGap is between two columns.
const usualGap = 3

// write writes the table, and those that follow it. Nothing is padded at the end of a line.
func (t *table) write(out io.Writer, painted, headers bool) error {
	if err := t.writeOne(out, painted, headers); err != nil || t.next == nil {
		return err
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	return t.next.write(out, painted, headers)
}

func (t *table) writeOne(out io.Writer, painted, headers bool) error {
	if len(t.rows) == 0 {
		_, err := fmt.Fprintln(out, t.empty)
		return err
	}
	rows, first := t.rows, 0
	if headers && len(t.headers) > 0 {
		header := make([]cell, len(t.headers))
		for i, name := range t.headers {
			header[i] = cell{text: name}
		}
		rows, first = append([][]cell{header}, rows...), 1
	}
	rows = printableRows(rows)
	widths, gap := columnWidths(rows), cmp.Or(t.gap, usualGap)
	var b strings.Builder
	for n, row := range rows {
		for len(row) > 0 && row[len(row)-1].text == "" {
			row = row[:len(row)-1]
		}
		for i, c := range row {
			b.WriteString(c.style.paint(c.text, painted))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text)+gap))
			}
		}
		b.WriteByte('\n')
		if text := t.below[n-first]; text != "" {
			b.WriteString(wrapped(terminal.Printable(text)))
		}
	}
	if t.footer != "" {
		b.WriteString(terminal.PrintableLines(t.footer) + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// printableRows are the rows, each text of which is printable.
func printableRows(rows [][]cell) [][]cell {
	all := make([][]cell, len(rows))
	for i, row := range rows {
		all[i] = make([]cell, len(row))
		for j, c := range row {
			all[i][j] = cell{text: terminal.Printable(c.text), style: c.style}
		}
	}
	return all
}

func columnWidths(rows [][]cell) []int {
	var widths []int
	for _, row := range rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
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
		case width+1+length > lineWidth:
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

// lineWidth is how wide a line of prose is.
const lineWidth = 100
