package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// InstallInCluster installs the CRDs of the in-cluster IPAM provider, from its module. No
// program converts between their versions, so only the stored one is served.
func (c *Cluster) InstallInCluster(ctx context.Context) error {
	module, err := c.moduleDir(ctx, "incluster", "sigs.k8s.io/cluster-api-ipam-provider-in-cluster")
	if err != nil {
		return err
	}
	return c.installBases(ctx, filepath.Join(module, "config", "crd", "bases"))
}

// moduleDir returns the directory of a module of the version that a module below hack/build
// requires.
func (c *Cluster) moduleDir(ctx context.Context, requiredBy, path string) (string, error) {
	dir := filepath.Join(c.moduleRoot, "hack", "build", requiredBy)
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", path)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("downloading %s: %w: %s", path, err, out)
	}
	cmd = exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", path)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("looking for %s: %w", path, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// InstallMetal3 installs the CRDs of Metal3's IP address manager, which `make providers`
// generates from its API.
func (c *Cluster) InstallMetal3(ctx context.Context) error {
	return c.installBases(ctx, filepath.Join(c.moduleRoot, "bin", "providers", "metal3"))
}

// installBases installs the CRDs in the files of a directory.
func (c *Cluster) installBases(ctx context.Context, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err == nil && len(files) == 0 {
		err = errors.New("there is no file")
	}
	if err != nil {
		return fmt.Errorf("reading CRDs in %s: %w: run `make providers`", dir, err)
	}
	var objects []*unstructured.Unstructured
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading a CRD: %w", err)
		}
		read, err := decode(text)
		if err != nil {
			return err
		}
		for _, object := range read {
			objects, names = append(objects, object), append(names, object.GetName())
		}
	}
	return c.put(ctx, unconverted(objects, names...))
}

// NewInCluster returns the manager of the in-cluster IPAM provider, as an administrator, which
// does not run yet. Its webhooks are not installed. Cluster API must run, for it converts the
// version of IPAddressClaims that the provider reads. The caller stops it.
func (c *Cluster) NewInCluster() (*Process, error) {
	return c.newController("in-cluster", filepath.Join("providers", "in-cluster"), "providers", "--webhook-port=0", "--metrics-bind-address=0")
}

// InstallCertManager installs the CRDs of cert-manager, from its module.
func (c *Cluster) InstallCertManager(ctx context.Context) error {
	module, err := c.moduleDir(ctx, "certmanager", "github.com/cert-manager/cert-manager")
	if err != nil {
		return err
	}
	return c.installBases(ctx, filepath.Join(module, "deploy", "crds"))
}

// NewCertManager returns the process of cert-manager's controllers, as an administrator, which
// does not run yet. The caller stops it.
func (c *Cluster) NewCertManager() (*Process, error) {
	return c.newController("cert-manager", "cert-manager", "cert-manager")
}

// newController returns a process of a binary in bin, which a target of make builds, with the
// flags that all such controllers have and further ones.
func (c *Cluster) newController(name, binary, target string, flags ...string) (*Process, error) {
	path := filepath.Join(c.moduleRoot, "bin", binary)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%w: run `make %s`", err, target)
	}
	port, err := c.free.next()
	if err != nil {
		return nil, err
	}
	return &Process{
		Name:  name,
		path:  path,
		Args:  append([]string{"--kubeconfig=" + c.Kubeconfig(), "--health-probe-bind-address=" + loopback(port)}, flags...),
		ready: answersOK("http://" + loopback(port) + "/readyz"),
		files: c.files,
	}, nil
}
