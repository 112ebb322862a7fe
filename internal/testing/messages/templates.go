package messages

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
)

// places returns the directories whose code makes messages for people.
func places() []string {
	return []string{
		"internal/convert", "internal/allocator", "internal/inventory", "internal/controller", "internal/ipam",
		"internal/ledger", "internal/queue", "internal/authorize", "webhooks",
	}
}

// Template holds a text in the code that becomes a message, or a part of one: its constant
// parts, which may have any text between them.
type Template struct {
	// At is the file and the line.
	At    string
	parts []string
}

// Meets reports whether a message has the constant parts, in their order.
func (t Template) Meets(message string) bool {
	for _, part := range t.parts {
		at := strings.Index(message, part)
		if at < 0 {
			return false
		}
		message = message[at+len(part):]
	}
	return true
}

// Text returns the constant text of the template, with … for the texts that are put into it.
func (t Template) Text() string { return strings.Join(t.parts, "…") }

func (t Template) String() string { return t.At + ": " + t.Text() }

var (
	verb = regexp.MustCompile(`%(\[\d+\])?[-+# 0]*\d*[a-zA-Z]`)
	// prose matches a text of words: a message, and no key, format or name.
	prose = regexp.MustCompile(`[A-Za-z]+[,:;]? [A-Za-z%]+`)
)

// templateOf returns the template of an expression; false if that is no text of words.
func templateOf(at string, expr ast.Expr) (Template, bool) {
	text, ok := constant(expr)
	if !ok || !prose.MatchString(text) {
		return Template{}, false
	}
	t := Template{At: at}
	for part := range strings.SplitSeq(text, gap) {
		if part != "" {
			t.parts = append(t.parts, part)
		}
	}
	return t, true
}

// gap stands for a text that is put into another one.
const gap = "\x00"

// constant returns the constant text of an expression, with gaps; false if it has none.
func constant(expr ast.Expr) (string, bool) {
	switch e := expr.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return verb.ReplaceAllString(text, gap), e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		left, one := constant(e.X)
		right, other := constant(e.Y)
		if e.Op != token.ADD || !one && !other {
			return "", false
		}
		return orGap(left, one) + orGap(right, other), true
	}
	return "", false
}

func orGap(text string, known bool) string {
	if known {
		return text
	}
	return gap
}

// Templates returns the texts in the code that people can get, from the root of the module.
func Templates(root fs.FS) ([]Template, error) {
	var all []Template
	for _, place := range places() {
		err := fs.WalkDir(root, place, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/benchtable/") {
				return err
			}
			source, err := fs.ReadFile(root, path)
			if err != nil {
				return err
			}
			found, err := templatesIn(path, source)
			all = append(all, found...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func templatesIn(path string, source []byte) ([]Template, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []Template
	ast.Inspect(file, func(node ast.Node) bool {
		if isForOthers(node) {
			return false
		}
		expr, ok := node.(ast.Expr)
		if !ok {
			return true
		}
		at := fmt.Sprintf("%s:%d", path, files.Position(expr.Pos()).Line)
		t, ok := templateOf(at, expr)
		if ok {
			found = append(found, t)
		}
		return !ok
	})
	return found, nil
}

// isForOthers reports whether the texts of a node are not for the people that use the API: log
// lines, which are for operators of the cluster (Info, Error, and functions named log… and
// trace…), struct tags and imports, and the names of failed calls, as the message is then that
// of the API server.
func isForOthers(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.ImportSpec, *ast.Field:
		return true
	case *ast.CallExpr:
		name := nameOf(n.Fun)
		if name == "Errorf" && len(n.Args) > 0 {
			text, _ := constant(n.Args[0])
			return strings.HasSuffix(text, ": "+gap) && strings.Count(text, ":") == 1
		}
		isLog := name == "Info" || name == "Error" && len(n.Args) > 1 || strings.HasPrefix(name, "log") || strings.HasPrefix(name, "trace")
		return isLog || name == "panic"
	}
	return false
}

func nameOf(fun ast.Expr) string {
	switch f := fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}
