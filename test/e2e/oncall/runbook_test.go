package oncall

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cadastre-dev/cadastre/test/framework/suite"
)

const root = "../../.."

// runbook is the commands of a page, in its order.
type runbook struct {
	w      *world
	blocks []string
	// values are what the placeholders are filled in with.
	values map[string]string
	path   string
}

// runbook reads a page. kubectl, and the plug-in as kubectl finds it, are in the path.
func (w *world) runbook(alert string) *runbook {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/runbooks", alert+".md"))
	suite.Must(w, err)
	r := &runbook{w: w, values: map[string]string{}, path: w.tools()}
	for _, block := range regexp.MustCompile("(?s) *```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		r.blocks = append(r.blocks, block[1])
	}
	if len(r.blocks) == 0 {
		w.Fatalf("the runbook of %s has no commands", alert)
	}
	return r
}

// tools is a directory with kubectl and its plug-in.
func (w *world) tools() string {
	w.Helper()
	dir := w.TB.(*testing.T).TempDir()
	kubectl, err := filepath.Abs(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"))
	suite.Must(w, err)
	suite.Must(w, os.Symlink(kubectl, filepath.Join(dir, "kubectl")))
	build := exec.CommandContext(w.Context(), "go", "build", "-o", filepath.Join(dir, "kubectl-ipam"), "./cmd/kubectl-ipam")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		w.Fatalf("building the plug-in: %v\n%s", err, out)
	}
	return dir
}

// placeholder is a variable that a block sets, for the reader to change.
var placeholder = regexp.MustCompile(`(?m)^( *)([A-Z]+)=(\S+)`)

// run runs the one block that has a command in it, with the placeholders of it and of earlier
// blocks filled in, and returns what it writes.
func (r *runbook) run(command string) string {
	r.w.Helper()
	var found []string
	for _, block := range r.blocks {
		if strings.Contains(block, command) {
			found = append(found, block)
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
	shell := exec.CommandContext(r.w.Context(), "bash", "-euo", "pipefail", "-c", script)
	shell.Env = append(os.Environ(), "PATH="+r.path+":"+os.Getenv("PATH"), "KUBECONFIG="+r.w.Kubeconfig(), "NO_COLOR=1")
	for name, value := range r.values {
		shell.Env = append(shell.Env, name+"="+value)
	}
	out, err := shell.CombinedOutput()
	if err != nil {
		r.w.Fatalf("%s: %v\n%s", script, err, out)
	}
	r.w.Logf("$ %s\n%s", strings.TrimSpace(script), out)
	return string(out)
}
