package cli

import (
	"strings"
	"testing"
)

func TestWhatOthersWroteDoesNotCommandTheTerminal(t *testing.T) {
	for text, want := range map[string]string{
		"alice":                     "alice",
		"Zoë, 世界":                   "Zoë, 世界",
		"eve\x1b[2J\x1b[H":          `eve\x1b[2J\x1b[H`,
		"eve\r\nIPClaim shop/web\t": `eve\r\nIPClaim shop/web\t`,
		"eve\u202egnp.exe":          `eve\u202egnp.exe`,
		"eve\u009b31m":              `eve\u009b31m`,
	} {
		if got := printable(text); got != want {
			t.Errorf("%q is printed as %q, want %q", text, got, want)
		}
	}
	if got := printableLines("one\n\ttwo\x07"); got != "one\n\ttwo\\a" {
		t.Errorf("lines are printed as %q", got)
	}
}

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
