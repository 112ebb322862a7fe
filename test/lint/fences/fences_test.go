// Package fences checks rules about the code that no linter has: that the linter's rows are the
// documented ones, roles, the files that the image copies, and the names in documents.
package fences

import (
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

const module = "github.com/cadastre-dev/cadastre"

// linters holds the parts of .golangci.yml that are read.
type linters struct {
	Linters struct {
		Enable   []string
		Settings struct {
			Depguard struct{ Rules map[string]rule }
		}
		Exclusions struct {
			Rules []struct{ Linters []string }
		}
	}
}

// rule holds one of depguard's: the files that it is for, and their imports.
type rule struct {
	ListMode string `json:"list-mode"`
	Files    []string
	Allow    []string
	Deny     []struct{ Pkg string }
}

// TestLinterMatchesDocumentedRows compares the rules row-1, row-2, ... of the linter with
// the table of packages in docs/architecture.md: a package imports only from rows below its own.
func TestLinterMatchesDocumentedRows(t *testing.T) {
	config := readLinters(t)
	if !slices.Contains(config.Linters.Enable, "depguard") {
		t.Error("depguard is not enabled")
	}
	for _, exclusion := range config.Linters.Exclusions.Rules {
		if slices.Contains(exclusion.Linters, "depguard") {
			t.Error("findings of depguard are excluded")
		}
	}
	documented := rows(t)
	checked := make([][]string, len(documented))
	for name, rule := range config.Linters.Settings.Depguard.Rules {
		row := rowOf(t, name, len(documented))
		if row < 0 {
			continue
		}
		if rule.ListMode != "lax" || len(rule.Deny) != 1 || rule.Deny[0].Pkg != module {
			t.Errorf("%s does not deny all packages but those that it allows", name)
		}
		packages := rule.packages()
		checked[row] = append(checked[row], packages...)
		below := imported(slices.Concat(documented[:row]...))
		if len(packages) == 1 && slices.Contains(rule.Allow, imported(packages)[0]) {
			below = append(below, imported(packages)...)
		}
		for _, pkg := range imported(slices.Concat(documented[row:]...)) {
			if rule.allows(pkg) && !slices.Contains(below, pkg) {
				t.Errorf("%s allows %s, as that begins with an allowed package", name, pkg)
			}
		}
		for i, allowed := range rule.Allow {
			rule.Allow[i] = strings.TrimSuffix(allowed, "$")
		}
		for _, list := range [][]string{below, rule.Allow} {
			slices.Sort(list)
		}
		if diff := cmp.Diff(slices.Compact(below), rule.Allow); diff != "" {
			t.Errorf("%s does not allow the packages in the rows below (-documented +allowed):\n%s", name, diff)
		}
	}
	for row := range documented {
		slices.Sort(documented[row])
		slices.Sort(checked[row])
	}
	if diff := cmp.Diff(documented, checked); diff != "" {
		t.Errorf("the rows of docs/architecture.md are not those of .golangci.yml (-documented +checked):\n%s", diff)
	}
}

func TestEveryPackageHasARow(t *testing.T) {
	places := append(slices.Concat(rows(t)...), "hack", "internal/testing", "test")
	for _, pkg := range goList(t, "./...") {
		pkg = strings.TrimPrefix(pkg, module+"/")
		isIn := func(place string) bool { return strings.HasPrefix(pkg+"/", strings.TrimSuffix(place, "/*")+"/") }
		if !slices.ContainsFunc(places, isIn) {
			t.Errorf("%s is in no row of docs/architecture.md", pkg)
		}
	}
}

// TestImportGraphMatchesImports compares the graph of docs/architecture.md with the imports. It has
// no arrow to a package to which a longer path leads.
func TestImportGraphMatchesImports(t *testing.T) {
	_, graph, _ := strings.Cut(documents(t)["docs/architecture.md"], "flowchart TD\n")
	graph, _, _ = strings.Cut(graph, "\n```")
	label := regexp.MustCompile(`(\w+)\["(.+?)"]`)
	nodes, imports := map[string]string{}, map[string][]string{}
	for _, match := range label.FindAllStringSubmatch(graph, -1) {
		nodes[module+"/"+match[2]] = match[1]
	}
	nodeOf := func(pkg string) string { return nodes[pkg] + nodes[path.Dir(pkg)+"/*"] }
	for _, line := range goList(t, "-f", `{{$from := .ImportPath}}{{range .Deps}}{{$from}} {{.}}{{"\n"}}{{end}}`, "./...") {
		from, to, _ := strings.Cut(line, " ")
		if from, to = nodeOf(from), nodeOf(to); from != "" && to != "" && from != to {
			imports[from] = append(imports[from], to)
		}
	}
	var want []string
	for from, all := range imports {
		for _, to := range all {
			if !slices.ContainsFunc(all, func(via string) bool { return slices.Contains(imports[via], to) }) {
				want = append(want, "  "+from+" --> "+to)
			}
		}
	}
	slices.Sort(want)
	drawn := slices.Sorted(strings.SplitSeq(label.ReplaceAllString(graph, "$1"), "\n"))
	if diff := cmp.Diff(slices.Compact(want), drawn); diff != "" {
		t.Errorf("the graph of docs/architecture.md differs from the imports (-imports +graph):\n%s", diff)
	}
}

func TestDeprecatedPackagesAreNotImported(t *testing.T) {
	const format = `{{range .Imports}}{{.}} {{end}}{{range .TestImports}}{{.}} {{end}}{{range .XTestImports}}{{.}} {{end}}`
	for _, line := range goList(t, "-f", "{{.ImportPath}} imports "+format, "./...") {
		if pkg, imported, _ := strings.Cut(line, " imports "); strings.Contains(imported, "/deprecated") {
			t.Errorf("%s imports something that is deprecated: %s", pkg, imported)
		}
	}
}

func readLinters(t *testing.T) (config linters) {
	t.Helper()
	text, err := os.ReadFile("../../../.golangci.yml")
	must.Succeed(t, err)
	must.Succeed(t, yaml.Unmarshal(text, &config))
	return config
}

// rows returns the documented packages of each row, the lowest first.
func rows(t *testing.T) (rows [][]string) {
	t.Helper()
	_, table, _ := strings.Cut(documents(t)["docs/architecture.md"], "<!-- rows:begin -->")
	table, _, _ = strings.Cut(table, "<!-- rows:end -->")
	for _, line := range regexp.MustCompile(`(?m)^\| \d+ \| ([^|]*) \|`).FindAllStringSubmatch(table, -1) {
		rows = append(rows, strings.Split(strings.ReplaceAll(line[1], "`", ""), ", "))
	}
	if len(rows) < 10 {
		t.Fatalf("docs/architecture.md has %d rows only, or in another form than this test reads", len(rows))
	}
	slices.Reverse(rows)
	return rows
}

// rowOf returns the index of the row that a rule such as row-2 or row-2-tracing is for; -1 if
// it is for none.
func rowOf(t *testing.T, rule string, rows int) int {
	t.Helper()
	name, isRow := strings.CutPrefix(rule, "row-")
	if !isRow {
		return -1
	}
	number, _, _ := strings.Cut(name, "-")
	row, err := strconv.Atoi(number)
	if err != nil || row < 1 || row > rows {
		t.Fatalf("%s is for no row of docs/architecture.md", rule)
	}
	return row - 1
}

// packages returns the packages that a rule is for, as the documented rows name them.
func (r rule) packages() (found []string) {
	for _, pattern := range r.Files {
		if pattern == "!$test" {
			continue
		}
		pattern = strings.TrimPrefix(pattern, "${config-path}/")
		found = append(found, strings.TrimSuffix(strings.TrimSuffix(pattern, "/**"), "/*.go"))
	}
	return found
}

// allows reports whether the rule allows an import: one that begins with an allowed one, or is it
// if that ends with $.
func (r rule) allows(path string) bool {
	return slices.ContainsFunc(r.Allow, func(allowed string) bool {
		exact, isExact := strings.CutSuffix(allowed, "$")
		return path == exact || !isExact && strings.HasPrefix(path, allowed)
	})
}

// imported returns the import paths, or their prefixes, of packages of rows.
func imported(packages []string) (paths []string) {
	for _, pkg := range packages {
		paths = append(paths, module+"/"+strings.TrimSuffix(pkg, "/*"))
	}
	return paths
}

// goList runs `go list` in the module's root and returns its lines.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Dir = "../../.."
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, stderr.String())
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
}

// TestImageIncludesManagerPackages checks that the Dockerfile copies, and
// .dockerignore admits, the directory of each.
func TestImageIncludesManagerPackages(t *testing.T) {
	dockerfile, err := os.ReadFile("../../../Dockerfile")
	must.Succeed(t, err)
	ignored, err := os.ReadFile("../../../.dockerignore")
	must.Succeed(t, err)
	var copied []string
	for _, match := range regexp.MustCompile(`(?m)^COPY (\S+) (\S+)$`).FindAllStringSubmatch(string(dockerfile), -1) {
		if match[1] == match[2] && strings.Contains(string(ignored), "\n!"+match[1]+"\n") {
			copied = append(copied, match[1])
		}
	}
	for _, pkg := range goList(t, "-deps", "./cmd/manager") {
		within, ours := strings.CutPrefix(pkg, module+"/")
		if ours && !slices.ContainsFunc(copied, func(dir string) bool { return strings.HasPrefix(within+"/", dir+"/") }) {
			t.Errorf("the image is built without %s: it copies %q", within, copied)
		}
	}
}

// requirements holds the parts of the output of `go mod edit -json` on a go.mod that are read.
type requirements struct {
	Module  struct{ Path string }
	Go      string
	Require []struct{ Path, Version string }
}

// TestExampleProviderIsExternalWithSameVersions checks that the module of the example
// provider lies beyond the path within which Go lets it import internal packages, and requires of
// each module the same version as this one.
func TestExampleProviderIsExternalWithSameVersions(t *testing.T) {
	ours, example := readRequirements(t, "go.mod"), readRequirements(t, "test/example-provider/go.mod")
	if strings.HasPrefix(example.Module.Path+"/", module+"/") {
		t.Errorf("its path is %s: Go lets it import %s/internal", example.Module.Path, module)
	}
	if example.Go != ours.Go {
		t.Errorf("it is of Go %s, and this module of %s", example.Go, ours.Go)
	}
	want := map[string]string{}
	for _, required := range ours.Require {
		want[required.Path] = required.Version
	}
	for _, required := range example.Require {
		if version, ok := want[required.Path]; ok && required.Version != version {
			t.Errorf("it requires %s %s, and this module %s", required.Path, required.Version, version)
		}
	}
}

func readRequirements(t *testing.T, file string) requirements {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", "../../../"+file).Output()
	must.Succeed(t, err)
	var read requirements
	must.Succeed(t, json.Unmarshal(out, &read))
	return read
}
