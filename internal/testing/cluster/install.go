package cluster

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
)

// overlay is config/default for managers that are processes.
//
//go:embed overlay.yaml.tmpl
var overlay string

// Kubectl runs kubectl as the administrator, in the module's root, and returns its output. An
// error contains its standard error output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--kubeconfig=" + c.Kubeconfig(), "--cache-dir=" + c.files.in("cache", "kubectl")}, args...)
	cmd := exec.CommandContext(ctx, c.assets.path("kubectl"), args...)
	cmd.Dir = c.moduleRoot
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args[2:], " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// Install applies a kustomization (a directory relative to the module's root)
// and waits until the API server serves the kinds in it.
func (c *Cluster) Install(ctx context.Context, kustomization string) error {
	return c.apply(ctx, filepath.Join(c.moduleRoot, kustomization))
}

// Reinstall applies the operator's manifests again, as they were at the start.
func (c *Cluster) Reinstall(ctx context.Context) error {
	into, err := filepath.EvalSymlinks(c.files.in("install"))
	if err != nil {
		return err
	}
	return c.apply(ctx, into)
}

// ReinstallAs applies the operator's manifests again as another field manager. That fails if it
// would change a field that another manager owns, unless a flag forces it.
func (c *Cluster) ReinstallAs(ctx context.Context, manager string, flags ...string) error {
	into, err := filepath.EvalSymlinks(c.files.in("install"))
	if err != nil {
		return err
	}
	args := append([]string{"apply", "--server-side", "--field-manager=" + manager, "--kustomize", into}, flags...)
	_, err = c.Kubectl(ctx, args...)
	return err
}

func (c *Cluster) apply(ctx context.Context, dir string) error {
	if _, err := c.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "--kustomize", dir); err != nil {
		return err
	}
	return c.AwaitKinds(ctx)
}

// installOperator applies config/default without its Deployment and with the Service of the
// webhooks leading to the balancer.
func (c *Cluster) installOperator(ctx context.Context) error {
	// Kustomize takes no absolute path, and resolves links before it compares.
	into, err := filepath.EvalSymlinks(c.files.in("install"))
	if err != nil {
		return err
	}
	base, err := filepath.EvalSymlinks(cmp.Or(c.options.Manifests, filepath.Join(c.moduleRoot, "config", "default")))
	if err != nil {
		return err
	}
	relative, err := filepath.Rel(into, base)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	values := map[string]any{"Base": relative, "Port": c.Balancer.Addr().Port, "Host": c.Balancer.Addr().IP}
	if err := template.Must(template.New("overlay").Parse(overlay)).Execute(&text, values); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(into, "kustomization.yaml"), text.Bytes(), 0o600); err != nil {
		return err
	}
	return c.apply(ctx, into)
}
