package document

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// table is one in Markdown that can be read as it stands, too.
type table struct {
	head []string
	// numbers is the first column that is aligned to the right.
	numbers int
	rows    [][]string
}

// Table is a table in Markdown. The columns from number numbers on are aligned to the right.
func Table(head []string, numbers int, rows [][]string) string {
	t := table{head: head, numbers: numbers, rows: rows}
	return t.String()
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) String() string {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	b.WriteString(t.line(t.head, widths))
	for i, width := range widths {
		if i >= t.numbers {
			fmt.Fprintf(&b, "| %s: ", strings.Repeat("-", max(width-1, 2)))
		} else {
			fmt.Fprintf(&b, "| %s ", strings.Repeat("-", max(width, 3)))
		}
	}
	b.WriteString("|\n")
	for _, row := range t.rows {
		b.WriteString(t.line(row, widths))
	}
	return b.String()
}

func (t *table) line(cells []string, widths []int) string {
	var b strings.Builder
	for i, cell := range cells {
		space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		if i >= t.numbers {
			fmt.Fprintf(&b, "| %s%s ", space, cell)
		} else {
			fmt.Fprintf(&b, "| %s%s ", cell, space)
		}
	}
	return b.String() + "|\n"
}
