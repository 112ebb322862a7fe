// Package release makes files of a release: the same bytes each time that it runs on the
// same source with the same Go.
package release

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"
)

// Platforms returns the platforms for which the plug-in of kubectl is released, as OS/ARCH.
func Platforms() []string {
	return []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64"}
}

// Release holds the settings of a release, from the source in the working directory.
type Release struct {
	// Version is semantic, with a leading v.
	Version string
	// Image is the operator's image, with a tag or a digest.
	Image string
	// Dir is the directory that takes the files.
	Dir string
	// Platforms holds the platforms of the plug-in.
	Platforms []string
}

// Write writes the archives of the plug-in, its manifest for Krew, and the chart.
func (r *Release) Write(ctx context.Context) error {
	if _, err := utilversion.ParseSemantic(r.Version); err != nil || !strings.HasPrefix(r.Version, "v") {
		return fmt.Errorf("%q is no version: give one such as v0.1.0", r.Version)
	}
	sums := map[string]string{}
	for _, platform := range r.Platforms {
		name, err := r.archivePlugin(ctx, platform)
		if err != nil {
			return fmt.Errorf("the plug-in for %s: %w", platform, err)
		}
		if sums[name], err = checksum(filepath.Join(r.Dir, name)); err != nil {
			return err
		}
	}
	if len(r.Platforms) == len(Platforms()) {
		if err := r.writeKrew(sums); err != nil {
			return fmt.Errorf("the manifest for Krew: %w", err)
		}
	}
	if err := r.writeChart(); err != nil {
		return fmt.Errorf("the chart: %w", err)
	}
	return nil
}

// archivePlugin builds the plug-in for a platform, and returns the name of its archive.
func (r *Release) archivePlugin(ctx context.Context, platform string) (string, error) {
	system, architecture, ok := strings.Cut(platform, "/")
	if !ok {
		return "", fmt.Errorf("%q is no platform: give one such as linux/amd64", platform)
	}
	scratch, err := os.MkdirTemp("", "release-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	binary := "kubectl-ipam"
	if system == "windows" {
		binary += ".exe"
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w -X github.com/cadastre-dev/cadastre/internal/version.stamped="+r.Version,
		"-o", filepath.Join(scratch, binary), "./cmd/kubectl-ipam")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+architecture)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return "", err
	}
	files := []file{
		{name: binary, path: filepath.Join(scratch, binary), mode: 0o755},
		{name: "kubectl_complete-ipam", path: "cmd/kubectl-ipam/kubectl_complete-ipam", mode: 0o755},
		{name: "LICENSE", path: "LICENSE", mode: 0o644},
	}
	if system == "windows" {
		name := fmt.Sprintf("kubectl-ipam_%s_%s.zip", system, architecture)
		return name, writeZip(filepath.Join(r.Dir, name), files)
	}
	name := fmt.Sprintf("kubectl-ipam_%s_%s.tar.gz", system, architecture)
	return name, writeTar(filepath.Join(r.Dir, name), files)
}
