package cluster

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/manifests"
)

// StartClusterAPI installs all of Cluster API's CRDs and webhooks, in place of existing ones,
// and runs its core manager, as an administrator, until Stop. From then on its validation, its
// defaults and its conversion between v1beta1 and v1beta2 are in force. The manager serves its
// webhooks on all interfaces: it has no flag for that.
func (c *Cluster) StartClusterAPI(ctx context.Context) error {
	if c.ClusterAPI != nil {
		return errors.New("it runs already")
	}
	freePorts, err := c.free.several(2)
	if err != nil {
		return err
	}
	webhooks, health := freePorts[0], freePorts[1]
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
			"--webhook-cert-dir=" + c.files.pathTo("capi"),
			"--health-addr=" + loopback(health),
			"--diagnostics-address=0",
			"--feature-gates=ClusterTopology=true",
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
		os.WriteFile(c.files.pathTo("capi", "tls.crt"), certificate, 0o600),
		os.WriteFile(c.files.pathTo("capi", "tls.key"), key, 0o600),
	)
}

const (
	kindCRD        = "CustomResourceDefinition"
	kindMutating   = "MutatingWebhookConfiguration"
	kindValidating = "ValidatingWebhookConfiguration"
)

// coreManifests renders Cluster API's own kustomization.
func (c *Cluster) coreManifests(ctx context.Context) ([]*unstructured.Unstructured, error) {
	dir, err := c.ClusterAPIDir(ctx)
	if err != nil {
		return nil, err
	}
	rendered, err := c.Kubectl(ctx, "kustomize", filepath.Join(dir, "core", "config", "default"))
	if err != nil {
		return nil, err
	}
	return manifests.Decode([]byte(rendered))
}

// reachedAt selects the CRDs and the webhook configurations, and makes the API server reach
// their webhooks at a URL instead of a Service.
func reachedAt(objects []*unstructured.Unstructured, url string, authority []byte) []*unstructured.Unstructured {
	var selected []*unstructured.Unstructured
	for _, object := range objects {
		switch object.GetKind() {
		case kindCRD:
			at(url, authority, object.Object, "spec", "conversion", "webhook", "clientConfig")
		case kindMutating, kindValidating:
			webhooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
			for _, webhook := range webhooks {
				at(url, authority, webhook.(map[string]any), "clientConfig")
			}
			_ = unstructured.SetNestedSlice(object.Object, webhooks, "webhooks")
		default:
			continue
		}
		selected = append(selected, object)
	}
	return selected
}

// at replaces the Service of a client configuration, if there is one.
func at(url string, authority []byte, object map[string]any, fields ...string) {
	path, found, _ := unstructured.NestedString(object, append(fields, "service", "path")...)
	if !found {
		return
	}
	_ = unstructured.SetNestedMap(object, map[string]any{
		"url":      url + path,
		"caBundle": base64.StdEncoding.EncodeToString(authority),
	}, fields...)
}

// unconverted selects CRDs by name, and serves only the stored version of each.
func unconverted(objects []*unstructured.Unstructured, names ...string) []*unstructured.Unstructured {
	var selected []*unstructured.Unstructured
	for _, object := range objects {
		if object.GetKind() != kindCRD || !slices.Contains(names, object.GetName()) {
			continue
		}
		unstructured.RemoveNestedField(object.Object, "spec", "conversion")
		versions, _, _ := unstructured.NestedSlice(object.Object, "spec", "versions")
		for _, version := range versions {
			fields := version.(map[string]any)
			fields["served"] = fields["storage"]
		}
		_ = unstructured.SetNestedSlice(object.Object, versions, "spec", "versions")
		selected = append(selected, object)
	}
	return selected
}

// put creates objects, or replaces existing ones except for their labels, and waits until the
// API server serves all kinds. (To apply them would leave the old client configuration beside
// the new one.)
func (c *Cluster) put(ctx context.Context, objects []*unstructured.Unstructured) error {
	writer, err := client.New(c.admin, client.Options{})
	if err != nil {
		return err
	}
	for _, object := range objects {
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { return putOne(ctx, writer, object) })
		if err != nil {
			return fmt.Errorf("installing %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return c.AwaitKinds(ctx)
}

func putOne(ctx context.Context, writer client.Client, object *unstructured.Unstructured) error {
	existing := &unstructured.Unstructured{}
	existing.SetGroupVersionKind(object.GroupVersionKind())
	err := writer.Get(ctx, client.ObjectKeyFromObject(object), existing)
	if apierrors.IsNotFound(err) {
		return writer.Create(ctx, object)
	}
	if err != nil {
		return err
	}
	labels := map[string]string{}
	maps.Copy(labels, existing.GetLabels())
	maps.Copy(labels, object.GetLabels())
	object.SetLabels(labels)
	object.SetResourceVersion(existing.GetResourceVersion())
	return writer.Update(ctx, object)
}

// InstallInCluster installs the CRDs of the in-cluster IPAM provider, from its module. No
// program converts between their versions, so only the stored one is served.
func (c *Cluster) InstallInCluster(ctx context.Context) error {
	return c.installModule(ctx, "incluster", "sigs.k8s.io/cluster-api-ipam-provider-in-cluster", "config/crd/bases")
}

// moduleDir returns the directory of a module of the version that a module below hack/build
// requires.
func (c *Cluster) moduleDir(ctx context.Context, requiredBy, path string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", path)
	cmd.Dir = filepath.Join(c.moduleRoot, "hack", "build", requiredBy)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("downloading %s: %w: %s", path, err, out)
	}
	var module struct{ Dir string }
	err = json.Unmarshal(out, &module)
	return module.Dir, err
}

// installModule installs the CRDs in a directory of a module that a module below hack/build
// requires.
func (c *Cluster) installModule(ctx context.Context, requiredBy, path, dir string) error {
	module, err := c.moduleDir(ctx, requiredBy, path)
	if err != nil {
		return err
	}
	return c.installBases(ctx, filepath.Join(module, dir))
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
		read, err := manifests.Decode(text)
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

// InstallProxmox installs the CRDs of the provider for Proxmox, from its module.
func (c *Cluster) InstallProxmox(ctx context.Context) error {
	return c.installModule(ctx, "proxmox", "github.com/ionos-cloud/cluster-api-provider-proxmox", "config/crd/bases")
}

// InstallCertManager installs the CRDs of cert-manager, from its module.
func (c *Cluster) InstallCertManager(ctx context.Context) error {
	return c.installModule(ctx, "certmanager", "github.com/cert-manager/cert-manager", "deploy/crds")
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
