package command

import (
	"strings"
	"testing"
)

func TestATableSpellsOutControlCharacters(t *testing.T) {
	rows := &Table{Headers: []string{"HOLDER", "REQUESTED BY"}}
	rows.Add(Cell{Text: "a", Style: Bad}, Text("%s", "eve\x1b[2J\nsecond line"))
	rows.Explain("because\x1b[2J")
	rows.Footer = "end\x1b[2J"
	var out strings.Builder
	if err := rows.Write(&out, true, true); err != nil {
		t.Fatal(err)
	}
	want := "HOLDER   REQUESTED BY\n\x1b[31ma\x1b[0m        eve\\x1b[2J\\nsecond line\n  because\\x1b[2J\nend\\x1b[2J\n"
	if out.String() != want {
		t.Errorf("the table is %q, want %q", out.String(), want)
	}
}
