package mutants

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
	"unicode"
)

// isSkipped reports whether a call calls one of the functions that are left alone.
func (c *collector) isSkipped(call *ast.CallExpr) bool {
	called := c.called(call)
	if called == nil || called.Pkg() == nil {
		return false
	}
	path := called.Pkg().Path()
	return isLogger(called) || slices.Contains(c.skip, path) || slices.Contains(c.skip, path+"."+called.Name())
}

// isLogger reports whether a function only logs: its name begins with the word log, and it
// returns nothing.
func isLogger(function types.Object) bool {
	f, ok := function.(*types.Func)
	if !ok || f.Signature().Results().Len() > 0 {
		return false
	}
	rest, found := strings.CutPrefix(f.Name(), "log")
	return found && (rest == "" || unicode.IsUpper(rune(rest[0])))
}

// onlySkips reports whether only calls of functions that are left alone depend on a condition.
func (c *collector) onlySkips(n *ast.IfStmt) bool {
	return n.Else == nil && len(n.Body.List) > 0 && !slices.ContainsFunc(n.Body.List, func(s ast.Stmt) bool {
		statement, ok := s.(*ast.ExprStmt)
		if !ok {
			return true
		}
		call, ok := statement.X.(*ast.CallExpr)
		return !ok || !c.isSkipped(call)
	})
}

func (c *collector) callsSkipped(expr ast.Expr) bool {
	calls := false
	ast.Inspect(expr, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && c.isSkipped(call) {
			calls = true
		}
		return !calls
	})
	return calls
}
