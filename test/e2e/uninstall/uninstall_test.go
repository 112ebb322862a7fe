// Package uninstall removes the operator the documented way, from a cluster in
// which blocks are held.
package uninstall

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/operator"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

const claims = `apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddressClaim
metadata: {name: NAME, namespace: tenant}
spec: {poolRef: {apiGroup: ipam.cadastre.dev, kind: IPPool, name: POOL}}
`

const pools = `apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPPool
metadata: {name: removed}
spec: {cidr: 198.18.7.0/29}
---
apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPPool
metadata: {name: busy}
spec: {cidr: 198.19.0.0/16}
`

const laterPool = `apiVersion: ipam.cadastre.dev/v1alpha1
kind: LocalIPPool
metadata: {name: later, namespace: tenant}
spec: {cidr: 198.18.8.0/29}
`

const laterAddress = `apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddress
metadata: {name: later, namespace: tenant}
spec: {address: 198.18.7.5, claimRef: {name: later}, poolRef: {apiGroup: ipam.cadastre.dev, kind: IPPool, name: removed}}
`

// policy lists the objects that remove-finalizers installs, and the last step of the docs deletes.
const policy = "validatingadmissionpolicies,validatingadmissionpolicybindings,clusterrolebindings"

// addresses lists Cluster API's kinds by their full names: Kubernetes also has IPAddresses.
const addresses = "ipaddressclaims.ipam.cluster.x-k8s.io,ipaddresses.ipam.cluster.x-k8s.io"

// ours finds the operator's finalizers in the lists of kubectl.
const ours = `jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.finalizers}{"\n"}{end}`

// world holds a cluster in which the operator runs.
type world struct{ *suite.World }

func (w *world) kubectl(args ...string) string {
	w.Helper()
	out := w.RunKubectl(args...)
	w.Log(out)
	return out
}

func (w *world) apply(manifest string) {
	w.Helper()
	path := filepath.Join(w.TempDir(), "manifest.yaml")
	suite.Must(w, os.WriteFile(path, []byte(manifest), 0o600))
	w.kubectl("apply", "--server-side", "-f", path)
}

// removeFinalizers acts as `kubectl exec deploy/cadastre-controller-manager -- /manager
// remove-finalizers` does in a cluster, once the operator has the right to it.
func (w *world) removeFinalizers() {
	w.Helper()
	w.kubectl("create", "clusterrolebinding", "cadastre-removal", "--clusterrole=cadastre-removal", "--serviceaccount="+cluster.Namespace+":"+cluster.ServiceAccount)
	asOperator, err := w.OperatorConfig(w.Context())
	suite.Must(w, err)
	o := operator.Options{Namespace: cluster.Namespace, ServiceAccount: cluster.ServiceAccount}
	suite.Must(w, operator.RemoveFinalizers(w.Context(), asOperator, o, w.Output()))
}

// isNotPermitted fails if the operator can install the policy of the removal before the right
// to that is bound, or any other.
func (w *world) isNotPermitted() {
	w.Helper()
	asOperator, err := w.OperatorConfig(w.Context())
	suite.Must(w, err)
	o := operator.Options{Namespace: cluster.Namespace, ServiceAccount: cluster.ServiceAccount}
	err = operator.RemoveFinalizers(w.Context(), asOperator, o, w.Output())
	if err == nil || !strings.Contains(err.Error(), "kubectl create clusterrolebinding cadastre-removal") {
		w.Errorf("finalizers are removed without the right: %v", err)
	}
	if there := w.kubectl("get", policy, "-o", "name"); strings.Contains(there, "cadastre-removal") {
		w.Errorf("without the right it has installed %s", there)
	}
}

func (w *world) served(name, pool string) {
	w.Helper()
	w.apply(strings.NewReplacer("NAME", name, "POOL", pool).Replace(claims))
	w.kubectl("-n", "tenant", "wait", "--for=condition=Ready", "ipaddressclaims.ipam.cluster.x-k8s.io", name, "--timeout=30s")
}

// expectFree fails if an object of the kinds has one of our finalizers.
func (w *world) expectFree(kinds string) {
	w.Helper()
	for line := range strings.Lines(w.kubectl("get", kinds, "-A", "-o", ours)) {
		if strings.Contains(line, "ipam.cadastre.dev/") {
			w.Errorf("a finalizer is left: %s", line)
		}
	}
}

// start starts a control plane and the operator; root is the folder of the module's files.
func start(t *testing.T) (w *world, root string) {
	t.Helper()
	w = &world{suite.Start(t, cluster.Options{Managers: 1, ControllerManager: true})}
	return w, suite.ModuleRoot(w)
}

func TestDeletionCompletesWithoutOperator(t *testing.T) {
	w, root := start(t)
	suite.Must(w, w.InstallClusterAPICRDs(t.Context()))
	w.kubectl("create", "namespace", "tenant")
	w.kubectl("apply", "--server-side", "-k", filepath.Join(root, "config/samples"))
	w.kubectl("wait", "--for=condition=Ready", "ipclaims", "--all", "-A", "--timeout=30s")
	w.apply(pools)
	w.served("machine", "removed")
	clients := w.keepClaiming()
	clients.awaitStored()

	asAdministrator := exec.CommandContext(t.Context(), filepath.Join(root, "bin/manager"), "--kubeconfig="+w.Kubeconfig(), "remove-finalizers")
	if out, err := asAdministrator.CombinedOutput(); err == nil || !strings.Contains(string(out), "in a pod of the operator") {
		t.Fatalf("an administrator may remove finalizers: %v: %s", err, out)
	}
	if there := w.kubectl("get", policy, "-o", "name"); strings.Contains(there, "cadastre-removal") {
		t.Errorf("refused, it has installed %s", there)
	}

	w.isNotPermitted()
	w.removeFinalizers()
	w.kubectl("-n", "tenant", "label", addresses, "machine", "changed=after")
	w.isRefused(laterPool, laterAddress, strings.NewReplacer("NAME", "later", "POOL", "removed").Replace(claims))
	clients.awaitRefused()
	w.expectFree(addresses + ",ipallocations,ippools,localippools")

	w.kubectl("delete", "--timeout=120s", "--ignore-not-found", "-k", filepath.Join(root, "config/default"))
	suite.Must(w, w.Managers[0].Stop()) // in a cluster it goes with its Deployment
	w.kubectl("delete", policy, "cadastre-removal")
	w.kubectl("-n", "tenant", "get", addresses, "machine") // it is Cluster API's, and stays
	w.kubectl("delete", "namespace", "tenant", "--timeout=60s")
	if left := w.kubectl("get", addresses, "-A", "-o", "name"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// isRefused expects that the manifests are refused, one by one, because the operator is removed.
func (w *world) isRefused(manifests ...string) {
	w.Helper()
	for _, manifest := range manifests {
		path := filepath.Join(w.TempDir(), "manifest.yaml")
		suite.Must(w, os.WriteFile(path, []byte(manifest), 0o600))
		if out, err := w.Kubectl(w.Context(), "create", "-f", path); err == nil || !strings.Contains(err.Error(), refusal) {
			w.Errorf("got %s, %v of %s; want %q", out, err, manifest, refusal)
		}
	}
}

// kinds lists all kinds that the samples have.
const kinds = "ipclaims,ipclasses,ippools,localippools,ipallocations"

func TestSamplesCanBeDeletedAsApplied(t *testing.T) {
	w, root := start(t)
	samples := filepath.Join(root, "config/samples")
	w.kubectl("apply", "--server-side", "-k", samples)
	w.kubectl("wait", "--for=condition=Ready", "ipclaims", "--all", "-A", "--timeout=30s")

	w.kubectl("delete", "--timeout=60s", "-k", samples)
	w.kubectl("wait", "--for=delete", "ipallocations", "--all", "-A", "--timeout=30s")
	if left := w.kubectl("get", kinds, "-A", "-o", "name"); left != "" {
		t.Errorf("left over:\n%s", left)
	}
}
