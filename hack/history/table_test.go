package history

import (
	"os"
	"strings"
	"testing"
)

func TestTheDocumentHasTheTables(t *testing.T) {
	var want strings.Builder
	if err := Write(&want); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docs/history.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), want.String()) {
		t.Errorf("docs/history.md does not have the tables of fields and reasons: make history-document\n%s", want.String())
	}
}
