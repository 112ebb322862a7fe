// Package uninstall removes the operator the documented way, from a cluster in
// which blocks are held.
package uninstall

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/manager/operator"
	"github.com/cadastre-dev/cadastre/test/cluster"
)

const claims = `apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddressClaim
metadata: {name: NAME, namespace: tenant}
spec: {poolRef: {apiGroup: ipam.cadastre.dev, kind: IPPool, name: removed}}
`

const pool = `apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPPool
metadata: {name: removed}
spec: {cidr: 198.18.7.0/29}
`

// addresses are Cluster API's kinds by their full names: Kubernetes has IPAddresses
// of its own.
const addresses = "ipaddressclaims.ipam.cluster.x-k8s.io,ipaddresses.ipam.cluster.x-k8s.io"

// ours finds the operator's finalizers in what kubectl lists.
const ours = `jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.finalizers}{"\n"}{end}`

// world is a cluster in which the operator runs.
type world struct {
	*cluster.Cluster
	*testing.T
}

func (w *world) kubectl(args ...string) string {
	w.Helper()
	out, err := w.Kubectl(w.Context(), args...)
	w.must(err)
	w.Log(out)
	return out
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) apply(manifest string) {
	w.Helper()
	path := filepath.Join(w.TempDir(), "manifest.yaml")
	w.must(os.WriteFile(path, []byte(manifest), 0o600))
	w.kubectl("apply", "--server-side", "-f", path)
}

// letGo is what `kubectl exec deploy/cadastre-controller-manager -- /manager let-go`
// does in a cluster.
func (w *world) letGo() {
	w.Helper()
	asOperator, err := w.OperatorConfig(w.Context())
	w.must(err)
	w.must(operator.LetGo(w.Context(), asOperator, w.Output()))
}

func (w *world) served(name string) {
	w.Helper()
	w.apply(strings.ReplaceAll(claims, "NAME", name))
	w.kubectl("-n", "tenant", "wait", "--for=condition=Ready", "ipaddressclaims.ipam.cluster.x-k8s.io", name, "--timeout=30s")
}

// expectFree fails where an object of the kinds has one of our finalizers; but for
// those of one name.
func (w *world) expectFree(kinds, except string) {
	w.Helper()
	for line := range strings.Lines(w.kubectl("get", kinds, "-A", "-o", ours)) {
		if strings.Contains(line, "ipam.cadastre.dev/") && !strings.Contains(line, " "+except+" ") {
			w.Errorf("it is held still: %s", line)
		}
	}
}

func TestNothingHangsOnceTheOperatorIsGone(t *testing.T) {
	c, err := cluster.Start(t.Context(), cluster.Options{Managers: 1, ControllerManager: true, Progress: t.Output()})
	w := &world{c, t}
	w.must(err)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	root, err := cluster.ModuleRoot()
	w.must(err)
	w.letGo() // of nothing, without Cluster API
	w.must(c.InstallClusterAPICRDs(t.Context()))
	w.kubectl("create", "namespace", "tenant")
	w.kubectl("apply", "--server-side", "-k", filepath.Join(root, "config/samples"))
	w.kubectl("wait", "--for=condition=Ready", "ipclaims", "--all", "-A", "--timeout=30s")
	w.apply(pool)
	w.served("machine")

	w.kubectl("delete", "mutatingwebhookconfiguration", "zz-cadastre-mutating-webhook-configuration")
	letGo := exec.CommandContext(t.Context(), filepath.Join(root, "bin/manager"), "--kubeconfig="+c.Kubeconfig(), "let-go")
	if out, err := letGo.CombinedOutput(); err == nil || !strings.Contains(string(out), "is taken off by the operator") {
		t.Fatalf("an administrator's let-go passes the policies: %v: %s", err, out)
	}
	if there := w.kubectl("get", addresses, "-A", "-o", ours); !strings.Contains(there, v1alpha1.FinalizerRelease) || !strings.Contains(there, v1alpha1.FinalizerProtect) {
		t.Errorf("a let-go that is refused has let go of %s", there)
	}
	w.letGo()
	w.kubectl("-n", "tenant", "label", addresses, "machine", "looked-at=again")
	w.served("later") // so that the operator, which still runs, has looked
	w.expectFree(addresses, "later")
	w.letGo()
	w.expectFree(addresses+",ipallocations,ippools,localippools", "")

	w.must(c.Managers[0].Stop())
	w.kubectl("delete", "validatingwebhookconfiguration", "cadastre-validating-webhook-configuration")
	w.kubectl("delete", "--timeout=60s", "-k", filepath.Join(root, "config/crd"))
	w.kubectl("delete", "namespace", "tenant", "cadastre-system", "--timeout=60s")
}
