package pages

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Shell runs commands one after the other in one directory. Variables that a command sets are
// set for the later ones.
type Shell struct {
	// Dir is the directory in which the commands run, and find files of the documents.
	Dir string
	// Env is added to the environment of this process.
	Env []string
	// tools is the first directory of PATH.
	tools string
}

// NewShell makes a shell with kubectl and its plug-in, which it builds of the module at root
// into the directory tools, in PATH.
func NewShell(ctx context.Context, root, tools, kubeconfig string) (*Shell, error) {
	kubectl, err := filepath.Abs(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"))
	if err != nil {
		return nil, err
	}
	if err := os.Symlink(kubectl, filepath.Join(tools, "kubectl")); err != nil {
		return nil, err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(tools, "kubectl-ipam"), "./cmd/kubectl-ipam")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the plug-in: %w\n%s", err, out)
	}
	return &Shell{Env: []string{"KUBECONFIG=" + kubeconfig, "NO_COLOR=1"}, tools: tools}, nil
}

// In returns a shell with the same tools in another directory, which is made. Commands find files
// of the module there as from its root: those of config are linked to.
func (s *Shell) In(dir, root string) (*Shell, error) {
	config, err := filepath.Abs(filepath.Join(root, "config"))
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	other := *s
	other.Dir = dir
	other.Env = append(other.Env[:len(s.Env):len(s.Env)], "HOME="+dir)
	return &other, os.Symlink(config, filepath.Join(dir, "config"))
}

// state is the file with the variables.
const state = ".variables"

// Run runs a script. It returns both outputs in one; a script that fails has the exit code, and no
// error.
func (s *Shell) Run(ctx context.Context, script string) (output string, code int, err error) {
	const frame = `set -a; [ ! -e ` + state + ` ] || . ./` + state + `; trap 'export -p >` + state + `' EXIT; set -euo pipefail; `
	shell := exec.CommandContext(ctx, "bash", "-c", frame+"\n"+script)
	shell.Dir = s.Dir
	shell.Env = append(append(os.Environ(), "PATH="+s.tools+":"+os.Getenv("PATH")), s.Env...)
	out, err := shell.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		return string(out), exit.ExitCode(), nil
	}
	return string(out), 0, err
}
