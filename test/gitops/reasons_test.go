package gitops

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// reasonsOfTheAPI returns the values of all constants of the API that are reasons of conditions.
func reasonsOfTheAPI(t *testing.T) []string {
	t.Helper()
	root, err := cluster.ModuleRoot()
	suite.Must(t, err)
	var reasons []string
	for _, name := range []string{"conditions.go", "clusterapi.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "api", "v1alpha1", name), nil, 0)
		suite.Must(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			value, ok := n.(*ast.ValueSpec)
			if !ok || len(value.Values) != 1 || !strings.HasPrefix(value.Names[0].Name, "Reason") {
				return true
			}
			if literal, ok := value.Values[0].(*ast.BasicLit); ok {
				reason, err := strconv.Unquote(literal.Value)
				suite.Must(t, err)
				reasons = append(reasons, reason)
			}
			return true
		})
	}
	if len(reasons) < 20 {
		t.Fatalf("found %d reasons only", len(reasons))
	}
	return reasons
}
