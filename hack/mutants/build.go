package mutants

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// Binary represents the tests of one package, with the mutants compiled in.
type Binary struct {
	// Package is its import path, and Dir the directory in which its tests run.
	Package, Dir string
	// Path is the executable file.
	Path string
}

// Build compiles the tests of the packages that the patterns name, of the module in dir,
// with the mutants. It writes all files into scratch.
func (in *Instrumented) Build(ctx context.Context, dir, scratch string, patterns ...string) ([]Binary, error) {
	overlay, err := in.overlay(dir, scratch)
	if err != nil {
		return nil, err
	}
	tested, err := testedPackages(ctx, dir, patterns)
	if err != nil {
		return nil, err
	}
	for i := range tested {
		tested[i].Path = filepath.Join(scratch, fmt.Sprintf("%d.test", i))
		build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay="+overlay, "-o", tested[i].Path, tested[i].Package)
		build.Dir = dir
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building the tests of %s: %w\n%s", tested[i].Package, err, out)
		}
	}
	return tested, nil
}

// overlay writes the changed files, and the file that lays them over the source.
func (in *Instrumented) overlay(dir, scratch string) (string, error) {
	replace := map[string]string{}
	add := func(path string, content []byte) error {
		file := filepath.Join(scratch, fmt.Sprintf("%d.go", len(replace)))
		replace[path] = file
		return os.WriteFile(file, content, 0o600)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := add(filepath.Join(dir, switchPackage, "switch.go"), []byte(switchSource)); err != nil {
		return "", err
	}
	for path, content := range in.Files {
		if err := add(path, content); err != nil {
			return "", err
		}
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(scratch, "overlay.json")
	return overlay, os.WriteFile(overlay, content, 0o600)
}

// testedPackages returns the packages that have tests.
func testedPackages(ctx context.Context, dir string, patterns []string) ([]Binary, error) {
	const format = `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}`
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-f", format}, patterns...)...)
	list.Dir, list.Stderr = dir, os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing packages: %w", err)
	}
	var tested []Binary
	for line := range strings.Lines(string(out)) {
		if path, at, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			tested = append(tested, Binary{Package: path, Dir: at})
		}
	}
	return tested, nil
}

// Mutant represents one small change of the code.
type Mutant struct {
	// ID is the number that turns the mutant on; the first is 1.
	ID int
	// File is relative to the module, with slashes; Line counts from 1, and Column in
	// bytes.
	File         string
	Line, Column int
	// Function is the name of the function with the mutant, with its receiver's type.
	Function string
	// Before and After are the text before and after the change, on one line.
	Before, After string
	// IsExplained is set if the mutant survives for a reason that is written down.
	IsExplained bool `json:"-"`
}

// String returns the mutant as it is listed.
func (m Mutant) String() string {
	return fmt.Sprintf("%s:%d %s: %s → %s", m.File, m.Line, m.Function, m.Before, m.After)
}

// Key returns a name of the mutant by its change, which stays the same when lines above it come
// or go.
func (m Mutant) Key() string {
	return fmt.Sprintf("%s %s: %s → %s", m.File, m.Function, m.Before, m.After)
}

// oneLine returns source text without line breaks and indentation.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

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
