// Package fences holds the architecture to its word: what may import what. The
// linter says the same sooner (depguard in .golangci.yml), but can be skipped.
package fences

import (
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/cadastre-dev/cadastre"

// rows are the packages that the operator is made of, the lowest first. A package
// imports only from rows below its own; one that lies in the directory of
// another has its row, and may import it. `*` stands for one element of a path.
var rows = [][]string{
	{"internal/ipam/space"},
	{"internal/ipam", "internal/kubeutil", "internal/observe/metrics", "internal/observe/tracing", "internal/version"},
	{"api/*", "internal/observe/history", "config", "web"},
	{"internal/convert", "internal/manifests"},
	{"internal/ledger"},
	{"internal/inventory"},
	{"internal/queue"},
	{"internal/allocator", "internal/certs", "internal/requester"},
	{"internal/controller/*", "webhooks", "cmd/kubectl-ipam/app"},
	{"internal/controller"},
	{"internal/operator"},
	{"cmd/*", "envtest"},
}

// clusterAPI lists who may import Cluster API, beside tests.
var clusterAPI = []string{"internal/controller/ipaddressclaim", "internal/operator", "cmd/*"}

// listed is one package as `go list` sees it.
type listed struct {
	path        string // within the module
	imports     []string
	testImports []string
}

func TestCoreImportsOnlyTheStandardLibraryAndItself(t *testing.T) {
	core := module + "/internal/ipam"
	for _, dependency := range goList(t, "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./internal/ipam/...") {
		if dependency != core && !strings.HasPrefix(dependency, core+"/") {
			t.Errorf("internal/ipam/... depends on %s", dependency)
		}
	}
}

func TestPackagesImportOnlyFromRowsBelow(t *testing.T) {
	for _, pkg := range packages(t) {
		row, place := find(pkg.path)
		if row < 0 {
			t.Errorf("%s has no row: give it one", pkg.path)
			continue
		}
		for _, imported := range pkg.imports {
			within, ours := strings.CutPrefix(imported, module+"/")
			if !ours {
				continue
			}
			below, of := find(within)
			switch {
			case below < 0:
				t.Errorf("%s imports %s, which is no part of the operator", pkg.path, within)
			case below >= row && of != place:
				t.Errorf("%s (row %d) imports %s (row %d)", pkg.path, row, within, below)
			}
		}
	}
}

func TestOnlyItsControllerKnowsClusterAPI(t *testing.T) {
	for _, pkg := range packages(t) {
		allowed := slices.ContainsFunc(clusterAPI, func(pattern string) bool { return within(pkg.path, pattern) != "" })
		for _, imported := range pkg.imports {
			if strings.HasPrefix(imported, "sigs.k8s.io/cluster-api") && !allowed {
				t.Errorf("%s imports %s", pkg.path, imported)
			}
		}
	}
}

func TestNothingDeprecatedIsImported(t *testing.T) {
	for _, pkg := range packages(t) {
		for _, imported := range slices.Concat(pkg.imports, pkg.testImports) {
			if strings.Contains(imported, "/deprecated") {
				t.Errorf("%s imports %s", pkg.path, imported)
			}
		}
	}
}

func TestFindTellsParentsFromChildren(t *testing.T) {
	for pkg, want := range map[string]string{
		"internal/ipam":                      "internal/ipam",
		"internal/ipam/space":                "internal/ipam/space",
		"internal/ipam/space/benchtable":     "internal/ipam/space",
		"internal/controller":                "internal/controller",
		"internal/controller/ipclaim":        "internal/controller/ipclaim",
		"internal/controller/ipclaim/inside": "internal/controller/ipclaim",
		"internal/testing/cluster":           "",
	} {
		if _, got := find(pkg); got != want {
			t.Errorf("%s is in %q, want %q", pkg, got, want)
		}
	}
}

// find returns the row of a package and the directory that has it: the most
// exact of the patterns that match. The row is negative if there is none.
func find(pkg string) (row int, place string) {
	row = -1
	for i, patterns := range rows {
		for _, pattern := range patterns {
			if match := within(pkg, pattern); len(match) > len(place) {
				row, place = i, match
			}
		}
	}
	return row, place
}

// within returns the directory that matches the pattern and is, or has, the
// package; nothing if there is none.
func within(pkg, pattern string) string {
	elements := strings.Split(pkg, "/")
	depth := strings.Count(pattern, "/") + 1
	if len(elements) < depth {
		return ""
	}
	dir := strings.Join(elements[:depth], "/")
	if ok, err := path.Match(pattern, dir); err != nil || !ok {
		return ""
	}
	return dir
}

// packages lists the operator's packages: everything but test/.
func packages(t *testing.T) []listed {
	t.Helper()
	const format = `{{.ImportPath}}|{{join .Imports " "}}|{{join .TestImports " "}} {{join .XTestImports " "}}`
	var found []listed
	for _, line := range goList(t, "-f", format, "./...") {
		fields := strings.Split(line, "|")
		pkg := strings.TrimPrefix(fields[0], module+"/")
		if within(pkg, "test") == "" && within(pkg, "hack") == "" && within(pkg, "internal/testing") == "" {
			found = append(found, listed{pkg, strings.Fields(fields[1]), strings.Fields(fields[2])})
		}
	}
	return found
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
