package mutants

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// switchPackage is the package that reports whether a mutant is on, within the module. An overlay
// adds it.
const switchPackage = "internal/mutantswitch"

// Instrumented holds code with all mutants compiled in.
type Instrumented struct {
	Mutants []Mutant
	// Files holds the changed files, by their absolute path.
	Files map[string][]byte
}

// Instrument compiles mutants into the packages that the patterns name, of the module in
// dir. skip names packages by their paths, and functions by package path and name. Instrument
// leaves calls of these alone: they write messages for people, or for a harness. It also leaves
// alone functions that only log, and conditions on which only such calls depend.
func Instrument(dir string, skip []string, patterns ...string) (*Instrumented, error) {
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedModule | packages.NeedImports,
		Dir:  dir,
	}, patterns...)
	if err != nil {
		return nil, err
	}
	if packages.PrintErrors(loaded) > 0 {
		return nil, fmt.Errorf("the packages %v do not compile", patterns)
	}
	all := &Instrumented{Files: map[string][]byte{}}
	for _, pkg := range loaded {
		for _, file := range pkg.Syntax {
			if ast.IsGenerated(file) {
				continue
			}
			if err := all.instrument(pkg, file, skip); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// instrument adds the mutants of one file.
func (in *Instrumented) instrument(pkg *packages.Package, file *ast.File, skip []string) error {
	path := pkg.Fset.Position(file.Pos()).Filename
	relative, err := filepath.Rel(pkg.Module.Dir, path)
	if err != nil {
		return err
	}
	src, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	c := &collector{info: pkg.TypesInfo, fset: pkg.Fset, src: src, file: filepath.ToSlash(relative), skip: skip, next: len(in.Mutants) + 1}
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil && !isLogger(c.info.Defs[f.Name]) {
			c.function, c.within = functionName(f), []ast.Node{f}
			ast.Inspect(f.Body, c.visit)
		}
	}
	if len(c.points) == 0 {
		return nil
	}
	in.Mutants = append(in.Mutants, c.mutants...)
	in.Files[path] = c.rewritten(file, pkg.Module.Path+"/"+switchPackage)
	return nil
}

// functionName returns the name of a function, with its receiver's type.
func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if index, ok := receiver.(*ast.IndexExpr); ok {
		receiver = index.X
	}
	if name, ok := receiver.(*ast.Ident); ok {
		return name.Name + "." + f.Name.Name
	}
	return f.Name.Name
}

// point represents a part of the source with mutants, which is rewritten.
type point struct {
	from, to int
	children []*point
	// write returns the new text. text returns the text of a part of the point, in which the
	// inner points are rewritten.
	write func(text func(from, to int) string) string
}

// collector finds the mutants of a file.
type collector struct {
	info     *types.Info
	fset     *token.FileSet
	src      []byte
	file     string
	function string
	// within holds the nodes around the visited node, the outermost first.
	within  []ast.Node
	skip    []string
	next    int
	mutants []Mutant
	points  []*point
}

// visit implements the argument of ast.Inspect.
func (c *collector) visit(node ast.Node) bool {
	if node == nil {
		c.within = c.within[:len(c.within)-1]
		return true
	}
	switch n := node.(type) {
	case *ast.IfStmt:
		if c.onlySkips(n) {
			if n.Init != nil {
				ast.Inspect(n.Init, c.visit)
			}
			return false
		}
		c.negate(n.Cond)
	case *ast.BlockStmt:
		c.statements(n.List)
	case *ast.CommClause:
		c.statements(n.Body)
	case *ast.CaseClause:
		for _, expr := range n.List {
			if tv := c.info.Types[expr]; tv.IsValue() && isBool(tv.Type) {
				c.negate(expr)
			}
		}
		c.statements(n.Body)
	case *ast.ReturnStmt:
		c.results(n)
	case *ast.BinaryExpr:
		c.binary(n)
	case *ast.CallExpr:
		if c.isSkipped(n) {
			return false
		}
	}
	c.within = append(c.within, node)
	return true
}

// statements adds a mutant without it for each statement that can be left out.
func (c *collector) statements(list []ast.Stmt) {
	for _, statement := range list {
		switch s := statement.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); !ok || !c.isSkipped(call) && !c.isLock(call) && !isPanic(call) {
				c.remove(s)
			}
		case *ast.DeferStmt:
			if !c.isSkipped(s.Call) && !c.isLock(s.Call) {
				c.remove(s)
			}
		case *ast.IncDecStmt:
			c.remove(s)
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE && slices.ContainsFunc(s.Lhs, func(e ast.Expr) bool { return c.text(e) != "_" }) {
				c.remove(s)
			}
		}
	}
}

// negate adds a mutant that negates a condition.
func (c *collector) negate(cond ast.Expr) {
	if c.info.Types[cond].Value != nil || c.callsSkipped(cond) {
		return
	}
	text := c.text(cond)
	id := c.add(cond, text, "!("+text+")")
	from, to := c.extent(cond)
	c.at(cond, func(inner func(int, int) string) string {
		return fmt.Sprintf("(%s != (%s))", on(id), inner(from, to))
	})
}

// results adds mutants that make a function return no error, or the opposite truth value.
func (c *collector) results(n *ast.ReturnStmt) {
	returns := c.signature().Results()
	if returns.Len() != len(n.Results) { // no results, or the results of a call
		return
	}
	for i, result := range n.Results {
		tv := c.info.Types[result]
		switch {
		case tv.IsNil() || c.callsSkipped(result):
		case isBool(returns.At(i).Type()) && tv.Value == nil:
			c.negate(result)
		case isBool(returns.At(i).Type()):
			c.constant(result)
		case types.Identical(returns.At(i).Type(), types.Universe.Lookup("error").Type()):
			c.noError(result)
		}
	}
}

// signature returns the signature of the innermost function.
func (c *collector) signature() *types.Signature {
	for _, node := range slices.Backward(c.within) {
		switch f := node.(type) {
		case *ast.FuncLit:
			return c.info.TypeOf(f).(*types.Signature)
		case *ast.FuncDecl:
			return c.info.Defs[f.Name].Type().(*types.Signature)
		}
	}
	return nil
}

// constant adds a mutant that exchanges true and false.
func (c *collector) constant(expr ast.Expr) {
	text := c.text(expr)
	other := map[string]string{"true": "false", "false": "true"}[text]
	if other == "" {
		return
	}
	id := c.add(expr, text, other)
	c.at(expr, func(func(int, int) string) string { return fmt.Sprintf("(%s != %s)", on(id), text) })
}

// noError adds a mutant that replaces an error by nil.
func (c *collector) noError(expr ast.Expr) {
	id := c.add(expr, "return "+c.text(expr), "return nil")
	from, to := c.extent(expr)
	c.at(expr, func(inner func(int, int) string) string {
		return fmt.Sprintf("mutantswitch.NoError(%d, %s)", id, inner(from, to))
	})
}

// swap represents an operator that replaces another one, with the function that computes it if it
// is arithmetic.
type swap struct {
	replacement token.Token
	computes    string
}

// swapOf returns the replacement of an operator, and false if there is none.
func swapOf(op token.Token) (swap, bool) {
	replacement, ok := map[token.Token]swap{
		token.LAND: {replacement: token.LOR}, token.LOR: {replacement: token.LAND},
		token.LSS: {replacement: token.LEQ}, token.LEQ: {replacement: token.LSS}, token.GTR: {replacement: token.GEQ}, token.GEQ: {replacement: token.GTR},
		token.EQL: {replacement: token.NEQ}, token.NEQ: {replacement: token.EQL},
		token.ADD: {token.SUB, "Add"}, token.SUB: {token.ADD, "Sub"}, token.MUL: {token.QUO, "Mul"}, token.QUO: {token.MUL, "Quo"},
		token.SHL: {token.SHR, "Shl"}, token.SHR: {token.SHL, "Shr"},
	}[op]
	return replacement, ok
}

// binary adds a mutant that replaces an operator.
func (c *collector) binary(n *ast.BinaryExpr) {
	swap, ok := swapOf(n.Op)
	tv := c.info.Types[n]
	if !ok || tv.Value != nil || c.callsSkipped(n) || swap.computes == "" && !isBool(tv.Type) || swap.computes != "" && !isNumber(tv.Type) {
		return
	}
	if (n.Op == token.EQL || n.Op == token.NEQ) && c.isConditionAlone(n) || strings.HasPrefix(swap.computes, "Sh") && c.info.Types[n.X].Value != nil {
		return
	}
	id := c.add(n, c.text(n), c.text(n.X)+" "+swap.replacement.String()+" "+c.text(n.Y))
	leftFrom, leftTo := c.extent(n.X)
	rightFrom, rightTo := c.extent(n.Y)
	c.at(n, func(inner func(int, int) string) string {
		x, y := inner(leftFrom, leftTo), inner(rightFrom, rightTo)
		if swap.computes != "" {
			return fmt.Sprintf("mutantswitch.%s(%d, %s, %s)", swap.computes, id, x, y)
		}
		return fmt.Sprintf("(%s && ((%s) %s (%s)) || !%s && ((%s) %s (%s)))", on(id), x, swap.replacement, y, on(id), x, n.Op, y)
	})
}

// isConditionAlone reports whether the expression is a whole condition. Such a condition has a
// negated mutant already: == and != are the negations of each other.
func (c *collector) isConditionAlone(n *ast.BinaryExpr) bool {
	from, to := c.extent(n)
	return slices.ContainsFunc(c.points, func(p *point) bool { return p.from == from && p.to == to })
}

// remove adds a mutant without a statement.
func (c *collector) remove(n ast.Stmt) {
	id := c.add(n, c.text(n), "nothing")
	from, to := c.extent(n)
	c.at(n, func(inner func(int, int) string) string {
		return fmt.Sprintf("if !%s { %s }", on(id), inner(from, to))
	})
}

func isPanic(call *ast.CallExpr) bool {
	name, ok := call.Fun.(*ast.Ident)
	return ok && name.Name == "panic"
}

// isLock reports whether a call is of package sync. The race detector notices a missing lock, and
// a deadlock shows a lock that is kept.
func (c *collector) isLock(call *ast.CallExpr) bool {
	called := c.called(call)
	return called != nil && called.Pkg() != nil && called.Pkg().Path() == "sync"
}

// called returns the function or method that is called by its name, or nil.
func (c *collector) called(call *ast.CallExpr) types.Object {
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		return c.info.Uses[f]
	case *ast.SelectorExpr:
		return c.info.Uses[f.Sel]
	}
	return nil
}

// add records a mutant, and returns its number.
func (c *collector) add(at ast.Node, before, after string) int {
	position := c.fset.Position(at.Pos())
	id := c.next
	c.next++
	c.mutants = append(c.mutants, Mutant{
		ID: id, File: c.file, Line: position.Line, Column: position.Column, Function: c.function, Before: oneLine(before), After: oneLine(after),
	})
	return id
}

func (c *collector) at(node ast.Node, write func(func(int, int) string) string) {
	from, to := c.extent(node)
	c.points = append(c.points, &point{from: from, to: to, write: write})
}

func (c *collector) extent(node ast.Node) (from, to int) {
	return c.fset.Position(node.Pos()).Offset, c.fset.Position(node.End()).Offset
}

func (c *collector) text(node ast.Node) string {
	from, to := c.extent(node)
	return string(c.src[from:to])
}

func on(id int) string { return fmt.Sprintf("mutantswitch.On(%d)", id) }

// rewritten returns the file with all its points rewritten, and with the import that they need.
func (c *collector) rewritten(file *ast.File, imports string) []byte {
	// Outer points come first: they begin earlier, or are larger if they begin at the same offset.
	// Of points with the same extent the earlier one is outer: a condition before its operator.
	slices.SortStableFunc(c.points, func(a, b *point) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return b.to - a.to
	})
	root := &point{to: len(c.src)}
	path := []*point{root}
	for _, p := range c.points {
		for p.from >= path[len(path)-1].to && len(path) > 1 {
			path = path[:len(path)-1]
		}
		outer := path[len(path)-1]
		outer.children = append(outer.children, p)
		path = append(path, p)
	}
	after := c.fset.Position(file.Name.End()).Offset
	text := c.written(root, 0, after) + "; import \"" + imports + "\"" + c.written(root, after, root.to)
	return []byte(text)
}

// written returns the text of a part of the source within a point, with the inner points rewritten.
func (c *collector) written(within *point, from, to int) string {
	var text strings.Builder
	at := from
	for _, child := range within.children {
		if child.from < from || child.to > to {
			continue
		}
		text.Write(c.src[at:child.from])
		text.WriteString(child.write(func(from, to int) string { return c.written(child, from, to) }))
		at = child.to
	}
	text.Write(c.src[at:to])
	return text.String()
}

func isBool(t types.Type) bool {
	if t == nil {
		return false
	}
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsBoolean != 0
}

func isNumber(t types.Type) bool {
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsNumeric != 0
}
