package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/util/cert"
)

// StartClusterAPI installs all of Cluster API's CRDs and webhooks, in place of existing ones,
// and runs its core manager, as an administrator, until Stop. From then on its validation, its
// defaults and its conversion between v1beta1 and v1beta2 are in force. The manager serves its
// webhooks on all interfaces: it has no flag for that.
func (c *Cluster) StartClusterAPI(ctx context.Context) error {
	if c.ClusterAPI != nil {
		return errors.New("it runs already")
	}
	given, err := c.free.several(2)
	if err != nil {
		return err
	}
	webhooks, health := given[0], given[1]
	certificate, err := c.issueCertificate()
	if err != nil {
		return err
	}
	objects, err := c.coreManifests(ctx)
	if err != nil {
		return err
	}
	if err := c.put(ctx, reachedAt(objects, "https://"+loopback(webhooks), certificate)); err != nil {
		return err
	}
	c.ClusterAPI = c.newCoreManager(webhooks, health)
	return c.ClusterAPI.Start(ctx)
}

// InstallClusterAPICRDs installs Cluster API's CRDs that an IPAM provider deals with:
// IPAddress, IPAddressClaim, Cluster and Machine. No program converts between their versions,
// so only the stored one, v1beta2, is served.
func (c *Cluster) InstallClusterAPICRDs(ctx context.Context) error {
	objects, err := c.coreManifests(ctx)
	if err != nil {
		return err
	}
	return c.put(ctx, unconverted(objects,
		"ipaddresses.ipam.cluster.x-k8s.io", "ipaddressclaims.ipam.cluster.x-k8s.io", "clusters.cluster.x-k8s.io", "machines.cluster.x-k8s.io"))
}

// ClusterAPIDir returns the directory of the Cluster API module from which bin/capi is built.
func (c *Cluster) ClusterAPIDir(ctx context.Context) (string, error) {
	return c.moduleDir(ctx, "capi", "sigs.k8s.io/cluster-api")
}

func (c *Cluster) coreBinary() string {
	if c.options.ClusterAPIBinary != "" {
		return c.options.ClusterAPIBinary
	}
	return filepath.Join(c.moduleRoot, "bin", "capi", "manager")
}

func (c *Cluster) newCoreManager(webhooks, health int) *Process {
	return &Process{
		Name: "cluster-api",
		path: c.coreBinary(),
		Args: []string{
			"--kubeconfig=" + c.Kubeconfig(),
			"--webhook-port=" + strconv.Itoa(webhooks),
			"--webhook-cert-dir=" + c.files.in("capi"),
			"--health-addr=" + loopback(health),
			"--diagnostics-address=0",
		},
		ready: answersOK("http://" + loopback(health) + "/readyz"),
		files: c.files,
	}
}

// issueCertificate writes a certificate for the webhooks on loopback to the place where the
// core manager looks for it, and returns the authority to trust.
func (c *Cluster) issueCertificate() (authority []byte, err error) {
	localhost := net.IPv4(127, 0, 0, 1)
	certificate, key, err := cert.GenerateSelfSignedCertKey(localhost.String(), []net.IP{localhost}, nil)
	if err != nil {
		return nil, fmt.Errorf("issuing a certificate for Cluster API's webhooks: %w", err)
	}
	return certificate, errors.Join(
		os.WriteFile(c.files.in("capi", "tls.crt"), certificate, 0o600),
		os.WriteFile(c.files.in("capi", "tls.key"), key, 0o600),
	)
}
