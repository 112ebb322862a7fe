package app

import (
	"strings"
	"testing"
)

func TestATableSpellsOutControlCharacters(t *testing.T) {
	rows := &table{headers: []string{"HOLDER", "REQUESTED BY"}}
	rows.add(cell{text: "a", style: bad}, text("%s", "eve\x1b[2J\nsecond line"))
	rows.explain("because\x1b[2J")
	rows.footer = "end\x1b[2J"
	var out strings.Builder
	if err := rows.write(&out, true, true); err != nil {
		t.Fatal(err)
	}
	want := "HOLDER   REQUESTED BY\n\x1b[31ma\x1b[0m        eve\\x1b[2J\\nsecond line\n  because\\x1b[2J\nend\\x1b[2J\n"
	if out.String() != want {
		t.Errorf("the table is %q, want %q", out.String(), want)
	}
}
