package web_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestPageModulesPass runs the tests of the page's modules, which need no browser, with Node.
func TestPageModulesPass(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("CI") != "" || os.Getenv("BROWSER_REQUIRED") != "" {
			t.Fatalf("node is needed: %v", err)
		}
		t.Skipf("NOT TESTED: the modules of the page, because node is not installed (20 or later): %v", err)
	}
	for _, source := range append(glob(t, "page/*.js"), glob(t, "map/*.js")...) {
		if out, err := exec.CommandContext(t.Context(), node, "--check", source).CombinedOutput(); err != nil {
			t.Errorf("node --check %s: %v\n%s", source, err, out)
		}
	}
	files := glob(t, "test/*/*.test.js")
	if len(files) == 0 {
		t.Fatal("there are no tests of modules")
	}
	command := exec.CommandContext(t.Context(), node, append([]string{"--test", "--test-reporter=spec"}, files...)...)
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("node --test: %v\n%s", err, out)
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return files
}
