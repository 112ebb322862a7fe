package tracing

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cadastre-dev/cadastre/test/perf/bench/document"
)

// TestTheTablesAreThoseOfTheDefinitions: `make tracing-document` writes them.
func TestTheTablesAreThoseOfTheDefinitions(t *testing.T) {
	text, err := os.ReadFile("../../docs/tracing.md")
	if err != nil {
		t.Fatal(err)
	}
	for part, table := range map[string]string{"spans": Spans(), "attributes": Attributes()} {
		want, err := document.Splice(string(text), part, table)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(text)); diff != "" {
			t.Errorf("the table of %s is out of date, run `make tracing-document` (-want +got):\n%s", part, diff)
		}
	}
}
