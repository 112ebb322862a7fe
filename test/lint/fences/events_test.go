package fences

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// withoutEvent has the reasons without an event, and the explanation.
var withoutEvent = map[string]string{
	"HasRoom":         "of the condition Exhausted: that of Ready changes too",
	"Recorded":        "of the condition Allocated: that of Ready changes too",
	"Terminating":     "the event DeletionBlocked says by how many blocks; nothing remains of other pools",
	"NoPools":         "of a class",
	"NotDefault":      "of a class",
	"NotServed":       "no controller of this operator serves the claim",
	"ClusterNotFound": "the condition of the IPAddressClaim says it",
}

// ofClusterAPI has reasons of Cluster API's contract.
var ofClusterAPI = map[string]bool{"AllocationFailed": true}

// TestDocumentedEventsMatchAPI compares the table of events with the constants of the
// API: a new reason has an event, or stands above.
func TestDocumentedEventsMatchAPI(t *testing.T) {
	_, table, _ := strings.Cut(documents(t)["docs/operations.md"], "<!-- events:begin -->")
	table, _, _ = strings.Cut(table, "<!-- events:end -->")
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| [A-Z][^|]*\| (?:Normal|Warning) \| ([^|]*) \|`).FindAllStringSubmatch(table, -1) {
		for reason := range strings.SplitSeq(row[1], ", ") {
			documented[strings.Trim(reason, "`")] = true
		}
	}
	stated := reasons(t)
	for reason := range stated {
		if documented[reason] == (withoutEvent[reason] != "") {
			t.Errorf("the reason %s is in the table of events: %t, and among those without event: %t", reason, documented[reason], withoutEvent[reason] != "")
		}
	}
	for reason := range documented {
		if !stated[reason] && !ofClusterAPI[reason] {
			t.Errorf("the table of events has %q, which is no reason", reason)
		}
	}
	for reason := range withoutEvent {
		if !stated[reason] {
			t.Errorf("there is no reason %s any more", reason)
		}
	}
}

// reasons returns the values of the constants Reason… and Event… of the API.
func reasons(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("../../../api/v1alpha1/*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") && !strings.HasPrefix(spec.Names[0].Name, "Event") {
				return true
			}
			for _, value := range spec.Values {
				if text, ok := value.(*ast.BasicLit); ok {
					reason, _ := strconv.Unquote(text.Value)
					found[reason] = true
				}
			}
			return true
		})
	}
	return found
}
