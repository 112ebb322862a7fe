package fences

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestTestsThatAreNamedExist has the documents name no test that is gone.
func TestTestsThatAreNamedExist(t *testing.T) {
	there := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	root := os.DirFS("../../..")
	err := fs.WalkDir(root, ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := fs.ReadFile(root, path)
		for _, match := range declared.FindAllSubmatch(source, -1) {
			there[string(match[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	documents, err := fs.Glob(root, "docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(documents, "README.md", "test/README.md") {
		text, err := fs.ReadFile(root, path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`).FindAllString(string(text), -1) {
			if !there[name] {
				t.Errorf("%s names %s, which is not there", path, name)
			}
		}
	}
}
