package fences

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

// TestDocumentedCodePlacesExist checks that the documents name no function, method or other
// declaration, as in `path/file.go:Function` and `path/file.go:Type.Method`, that is gone from its
// file.
func TestDocumentedCodePlacesExist(t *testing.T) {
	place := regexp.MustCompile(`[\w./-]+\.go:[A-Za-z_]\w*(?:\.\w+)?`)
	files := map[string]map[string]bool{}
	found := map[string]int{}
	for document, text := range documents(t) {
		named := place.FindAllString(text, -1)
		slices.Sort(named)
		for _, name := range slices.Compact(named) {
			file, declared, _ := strings.Cut(name, ":")
			if files[file] == nil {
				files[file] = declarations(t, file)
			}
			if found[document]++; !files[file][declared] {
				t.Errorf("%s names %s, which does not exist", document, name)
			}
		}
	}
	if found["docs/architecture.md"] == 0 {
		t.Error("docs/architecture.md names no place in the code, or in another form than this test reads")
	}
}

// documents returns the texts of all documents, by their paths.
func documents(t *testing.T) map[string]string {
	t.Helper()
	root := os.DirFS("../../..")
	paths, err := fs.Glob(root, "docs/*.md")
	must.Succeed(t, err)
	texts := map[string]string{}
	for _, path := range append(paths, "README.md", "test/README.md") {
		text, err := fs.ReadFile(root, path)
		must.Succeed(t, err)
		texts[path] = string(text)
	}
	return texts
}

// declarations returns the names that a file declares at its top level: functions, types, constants
// and variables by their names, methods as Type.Method.
func declarations(t *testing.T, path string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	file, err := parser.ParseFile(token.NewFileSet(), "../../../"+path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return names
	}
	for _, declared := range file.Decls {
		switch d := declared.(type) {
		case *ast.FuncDecl:
			names[receiver(d)+d.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = true
				case *ast.ValueSpec:
					for _, name := range s.Names {
						names[name.Name] = true
					}
				}
			}
		}
	}
	return names
}

// receiver returns the type of a method with a dot; empty for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	name := ""
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" { // the rest is type parameters
			name = id.Name + "."
		}
		return name == ""
	})
	return name
}
