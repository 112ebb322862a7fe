package terminal

import "testing"

func TestPrintableEscapesControlCharacters(t *testing.T) {
	for text, want := range map[string]string{
		"alice":                     "alice",
		"Zoë, 世界":                   "Zoë, 世界",
		"eve\x1b[2J\x1b[H":          `eve\x1b[2J\x1b[H`,
		"eve\r\nIPClaim shop/web\t": `eve\r\nIPClaim shop/web\t`,
		"eve\u202egnp.exe":          `eve\u202egnp.exe`,
		"eve\u009b31m":              `eve\u009b31m`,
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q is printed as %q, want %q", text, got, want)
		}
	}
	if got := PrintableLines("one\n\ttwo\x07"); got != "one\n\ttwo\\a" {
		t.Errorf("lines are printed as %q", got)
	}
}
