// Package helm runs the program of `make helm`.
package helm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Helm represents the program of `make helm`. It runs without the configuration of its caller.
type Helm struct {
	binary string
	env    []string
}

// New finds the program within a module. home is a directory for its caches.
func New(module, home string) (*Helm, error) {
	binary := filepath.Join(module, "bin", "helm")
	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("%w: run `make helm`", err)
	}
	env := append(os.Environ(), "HELM_CACHE_HOME="+filepath.Join(home, "cache"), "HELM_CONFIG_HOME="+filepath.Join(home, "config"), "HELM_DATA_HOME="+filepath.Join(home, "data"))
	return &Helm{binary: binary, env: env}, nil
}

// Run runs the program and returns its standard output. An error contains its standard error.
func (h *Helm) Run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, h.binary, args...)
	cmd.Env = h.env
	out, err := cmd.Output()
	if failure := new(exec.ExitError); errors.As(err, &failure) {
		err = fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, failure.Stderr)
	}
	return string(out), err
}
