package history

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
)

// TestReasonsAreAllExplained reads the constants out of the source.
func TestReasonsAreAllExplained(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "entry.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]bool{}
	for _, r := range Reasons() {
		if explained[string(r.Reason)] || r.Meaning == "" || len(r.Of) == 0 {
			t.Errorf("%s is explained twice, or not", r.Reason)
		}
		explained[string(r.Reason)] = true
	}
	constants := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if of, ok := spec.Type.(*ast.Ident); ok && of.Name == "Reason" {
			constants++
			if name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value); err != nil || !explained[name] {
				t.Errorf("%s is not explained", spec.Names[0])
			}
		}
		return true
	})
	if constants != len(explained) {
		t.Errorf("%d reasons are explained, and %d are declared", len(explained), constants)
	}
}

func TestReleaseReasonsMatchMetrics(t *testing.T) {
	var got []Reason
	for _, counted := range []metrics.ReleaseReason{metrics.HolderDeleted, metrics.Orphaned, metrics.RetentionExpired, metrics.ReuseDelayOver, metrics.Deleted} {
		got = append(got, ReasonOf(counted))
	}
	if want := []Reason{HolderDeleted, Orphaned, RetentionExpired, ReuseDelayOver, Deleted}; !slices.Equal(got, want) {
		t.Errorf("reasons %v, want %v", got, want)
	}
}
