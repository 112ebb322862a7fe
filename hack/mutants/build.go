package mutants

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Binary represents the tests of one package, with the mutants compiled in.
type Binary struct {
	// Package is its import path, and Dir the directory in which its tests run.
	Package, Dir string
	// Path is the executable file.
	Path string
}

// Build compiles the tests of the packages that the patterns name, of the module in dir,
// with the mutants. It writes all files into scratch.
func (in *Instrumented) Build(ctx context.Context, dir, scratch string, patterns ...string) ([]Binary, error) {
	overlay, err := in.overlay(dir, scratch)
	if err != nil {
		return nil, err
	}
	tested, err := testedPackages(ctx, dir, patterns)
	if err != nil {
		return nil, err
	}
	for i := range tested {
		tested[i].Path = filepath.Join(scratch, fmt.Sprintf("%d.test", i))
		build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay="+overlay, "-o", tested[i].Path, tested[i].Package)
		build.Dir = dir
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building the tests of %s: %w\n%s", tested[i].Package, err, out)
		}
	}
	return tested, nil
}

// overlay writes the changed files, and the file that lays them over the source.
func (in *Instrumented) overlay(dir, scratch string) (string, error) {
	replace := map[string]string{}
	add := func(path string, content []byte) error {
		file := filepath.Join(scratch, fmt.Sprintf("%d.go", len(replace)))
		replace[path] = file
		return os.WriteFile(file, content, 0o600)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := add(filepath.Join(dir, switchPackage, "switch.go"), []byte(switchSource)); err != nil {
		return "", err
	}
	for path, content := range in.Files {
		if err := add(path, content); err != nil {
			return "", err
		}
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(scratch, "overlay.json")
	return overlay, os.WriteFile(overlay, content, 0o600)
}

// testedPackages returns the packages that have tests.
func testedPackages(ctx context.Context, dir string, patterns []string) ([]Binary, error) {
	const format = `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}`
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-f", format}, patterns...)...)
	list.Dir, list.Stderr = dir, os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing packages: %w", err)
	}
	var tested []Binary
	for line := range strings.Lines(string(out)) {
		if path, at, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			tested = append(tested, Binary{Package: path, Dir: at})
		}
	}
	return tested, nil
}
