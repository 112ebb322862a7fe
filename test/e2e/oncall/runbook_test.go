package oncall

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/pages"
)

const root = "../../.."

// runbook holds the commands of a page, in its order.
type runbook struct {
	w    *world
	page *pages.Page
	// values has the values of the placeholders.
	values map[string]string
	shell  *pages.Shell
}

// runbook reads a page.
func (w *world) runbook(alert string) *runbook {
	w.Helper()
	page, err := pages.Read(root, "docs/runbooks/"+alert+".md")
	suite.Must(w, err)
	shell, err := pages.NewShell(w.Context(), root, w.TB.(*testing.T).TempDir(), w.Kubeconfig())
	suite.Must(w, err)
	shell.Dir = w.TB.(*testing.T).TempDir()
	return &runbook{w: w, page: page, values: map[string]string{}, shell: shell}
}

// placeholder is a variable that a block sets, for the reader to change.
var placeholder = regexp.MustCompile(`(?m)^( *)([A-Z]+)=(\S+)`)

// run runs the one block that has a command in it, with the placeholders of it and of earlier
// blocks filled in, and returns its output.
func (r *runbook) run(command string) string {
	r.w.Helper()
	var found []string
	for _, block := range r.page.Blocks {
		if block.Language == "sh" && !block.Hidden && strings.Contains(block.Text, command) {
			found = append(found, block.Text)
		}
	}
	if len(found) != 1 {
		r.w.Fatalf("%d blocks of the runbook have %q, want 1", len(found), command)
	}
	script := placeholder.ReplaceAllStringFunc(found[0], func(set string) string {
		parts := placeholder.FindStringSubmatch(set)
		value, ok := r.values[parts[2]]
		if !ok {
			r.w.Fatalf("the runbook has the placeholder %s, for which the test has no value", parts[2])
		}
		return parts[1] + parts[2] + "=" + value
	})
	for name, value := range r.values { // those of earlier blocks, too
		script = name + "=" + value + "\n" + script
	}
	out, code, err := r.shell.Run(r.w.Context(), script)
	suite.Must(r.w, err)
	if code != 0 {
		r.w.Fatalf("%s: exit code %d\n%s", script, code, out)
	}
	r.w.Logf("$ %s\n%s", strings.TrimSpace(script), out)
	return out
}
