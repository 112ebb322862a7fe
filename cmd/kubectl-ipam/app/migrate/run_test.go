package migrate

import (
	"strings"
	"testing"
)

// TestPlanTableEscapesControlCharacters covers texts that NetBox's users and the authors of CSV files
// can write.
func TestPlanTableEscapesControlCharacters(t *testing.T) {
	var out strings.Builder
	if err := printTable(&out, []row{{"a", "b", "of eve\x1b[2J\nIPPool core\tbecomes\tnothing"}}); err != nil {
		t.Fatal(err)
	}
	want := "OBJECT   BECOMES   NOTE\na        b         of eve\\x1b[2J\\nIPPool core\\tbecomes\\tnothing\n"
	if out.String() != want {
		t.Errorf("printed is %q, want %q", out.String(), want)
	}
	out.Reset()
	(&run{o: Options{Out: &out}}).say("pool %s\nsecond line", "eve\x1b[2J")
	if want := "pool eve\\x1b[2J\nsecond line\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
