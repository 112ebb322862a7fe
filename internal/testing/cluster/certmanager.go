package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

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
	path := filepath.Join(c.moduleRoot, "bin", "cert-manager")
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%w: run `make cert-manager`", err)
	}
	port, err := c.free.next()
	if err != nil {
		return nil, err
	}
	return &Process{
		Name:  "cert-manager",
		path:  path,
		Args:  []string{"--kubeconfig=" + c.Kubeconfig(), "--health-probe-bind-address=" + loopback(port)},
		ready: answersOK("http://" + loopback(port) + "/readyz"),
		files: c.files,
	}, nil
}
