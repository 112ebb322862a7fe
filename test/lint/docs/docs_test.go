// Package docs checks the documents: their links, their one index, and that blocks that are not run
// state the reason.
package docs

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/testing/must"
	"github.com/cadastre-dev/cadastre/test/framework/pages"
)

const (
	root  = "../../.."
	index = "docs/README.md"
)

func all(t *testing.T) map[string]*pages.Page {
	t.Helper()
	read, err := pages.All(root)
	must.Succeed(t, err)
	byPath := map[string]*pages.Page{}
	for _, page := range read {
		byPath[page.Path] = page
	}
	if byPath["README.md"] == nil || byPath[index] == nil || len(byPath) < 40 {
		t.Fatalf("found %d documents, and not README.md and %s among them", len(byPath), index)
	}
	return byPath
}

func TestLinksHaveTargets(t *testing.T) {
	documents, checked := all(t), 0
	for _, page := range documents {
		for _, link := range page.Links() {
			checked++
			if wrong := broken(documents, page, link.Target); wrong != "" {
				t.Errorf("%s:%d: %s: %s", page.Path, link.Line, link.Target, wrong)
			}
		}
	}
	if checked < 200 {
		t.Errorf("found %d links only", checked)
	}
}

// broken returns the fault of a link; nothing if it leads to an existing place. It does not use the
// network: of links to other sites the form alone is checked.
func broken(documents map[string]*pages.Page, from *pages.Page, target string) string {
	to, err := url.Parse(target)
	switch {
	case err != nil:
		return err.Error()
	case to.Scheme != "":
		if to.Scheme != "https" || !strings.Contains(to.Host, ".") {
			return "is not a link of the form https://HOST/..."
		}
		return ""
	case path.IsAbs(to.Path):
		return "is absolute: write it relative to the page"
	}
	file := path.Join(path.Dir(from.Path), to.Path)
	if to.Path == "" {
		file = from.Path
	}
	if strings.HasPrefix(file, "../") {
		return "leads out of the repository"
	}
	if _, err := os.Stat(filepath.Join(root, file)); err != nil {
		return "there is no " + file
	}
	if to.Fragment == "" {
		return ""
	}
	page := documents[file]
	if page == nil || !page.Anchors()[to.Fragment] {
		return file + " has no heading #" + to.Fragment
	}
	return ""
}

// TestBrokenLinksAreFound tests that the check of links finds faults.
func TestBrokenLinksAreFound(t *testing.T) {
	page := pages.Parse("docs/install.md", "# A & B: `c`\n\n[a](#a--b-c) [b](#no) [c](none.md) [d](/README.md) [e](http://e.org) [f](../README.md#cadastre) [g](../../x) [h](README.md#no)\n\n```\n[i](none.md)\n```\n")
	documents := all(t)
	documents[page.Path] = page
	want := map[string]bool{"#a--b-c": false, "#no": true, "none.md": true, "/README.md": true, "http://e.org": true, "../README.md#cadastre": false, "../../x": true, "README.md#no": true}
	links := page.Links()
	if len(links) != len(want) {
		t.Errorf("found %d links, want %d", len(links), len(want))
	}
	for _, link := range links {
		if wrong := broken(documents, page, link.Target); (wrong != "") != want[link.Target] {
			t.Errorf("%s: %q, want a mistake: %t", link.Target, wrong, want[link.Target])
		}
	}
}

// TestIndexLinksEveryPage checks that docs/README.md links to each page of docs, and to one of
// each other folder, from which the others of that folder are reached.
func TestIndexLinksEveryPage(t *testing.T) {
	documents := all(t)
	reached := map[string]bool{}
	next := []string{index}
	for len(next) > 0 {
		from := next[0]
		next = next[1:]
		reached[from] = true
		for _, link := range documents[from].Links() {
			file, _, _ := strings.Cut(link.Target, "#")
			file = path.Join(path.Dir(from), file)
			isFollowed := from == index || path.Dir(file) == path.Dir(from) && path.Dir(from) != "docs" && from != "README.md"
			if isFollowed && documents[file] != nil && !reached[file] {
				next = append(next, file)
			}
		}
	}
	for file := range documents {
		if !reached[file] {
			t.Errorf("%s does not lead to %s: add it to the index, or to the README of its folder", index, file)
		}
	}
	if !slices.ContainsFunc(documents["README.md"].Links(), func(l pages.Link) bool { return l.Target == index }) {
		t.Errorf("README.md has no link to %s", index)
	}
}

// TestSkippedBlocksStateReason checks that the suite of documents runs all blocks but those that are
// marked.
func TestSkippedBlocksStateReason(t *testing.T) {
	tests := declared(t)
	for _, page := range all(t) {
		for _, mistake := range page.Mistakes {
			t.Error(mistake)
		}
		if page.RunBy != "" && !tests[page.RunBy] {
			t.Errorf("%s is run by %q, which is no test", page.Path, page.RunBy)
		}
		for _, block := range page.Blocks {
			for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(block.NotRun, -1) {
				if !tests[name] {
					t.Errorf("%s:%d: names %s, which is no test", page.Path, block.Line, name)
				}
			}
			switch {
			case block.Marked && !pages.Runs(block.Language):
				t.Errorf("%s:%d: a block of the language %q is never run: remove the marker", page.Path, block.Line, block.Language)
			case block.Marked && len(strings.Fields(block.NotRun)) < 3:
				t.Errorf("%s:%d: %q gives no reason why the block is not run", page.Path, block.Line, block.NotRun)
			case !knownLanguages[block.Language]:
				t.Errorf("%s:%d: the language %q is none that this test knows", page.Path, block.Line, block.Language)
			case !pages.Runs(block.Language) && command.MatchString(block.Text):
				t.Errorf("%s:%d: the block has commands: give it the language sh or console, so that they are run", page.Path, block.Line)
			}
		}
	}
}

// knownLanguages holds the languages of blocks. Those that are not run have no commands.
var knownLanguages = map[string]bool{"sh": true, "console": true, "yaml": true, "": true, "mermaid": true, "go": true, "promql": true, "csv": true, "json": true, "hcl": true}

// command matches a line that reads like one of a shell. The reference of the plug-in, which is
// generated, indents its examples: TestCommandExamplesAreValid reads those.
var command = regexp.MustCompile(`(?m)^(\$ |kubectl (get|apply|create|delete|patch)|helm |make )`)

// TestDocumentedTestsExist checks that the documents name no test that is gone.
func TestDocumentedTestsExist(t *testing.T) {
	tests := declared(t)
	for file, page := range all(t) {
		if path.Dir(file) != "docs" && file != "README.md" && file != "test/README.md" {
			continue
		}
		for _, name := range regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`).FindAllString(page.Text, -1) {
			if !tests[name] {
				t.Errorf("%s names %s, which does not exist", file, name)
			}
		}
	}
}

// declared returns the names of all tests.
func declared(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err == nil && path == filepath.Join(root, "bin") {
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range function.FindAllSubmatch(source, -1) {
			names[string(match[1])] = true
		}
		return err
	})
	must.Succeed(t, err)
	return names
}
