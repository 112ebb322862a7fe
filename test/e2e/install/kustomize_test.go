package install

import (
	"path/filepath"
	"strings"

	"github.com/cadastre-dev/cadastre/hack/chart"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// later is an overlay of a later release: with another flag, and another field of a CRD.
const later = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [BASE]
patches:
- target: {kind: Deployment, name: cadastre-controller-manager}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --workers=4}
- target: {kind: CustomResourceDefinition, name: ippools.ipam.cadastre.dev}
  patch: |
    - {op: add, path: /spec/names/shortNames/-, value: addressspace}
`

// byKustomize applies the overlay for another namespace and another service account.
func (w *world) byKustomize() {
	const namespace, account = "address-management", "cadastre"
	overlay := filepath.Join(w.root, "config", "overlays", "another-namespace")

	w.RunKubectl("apply", "--server-side", "-k", overlay)
	w.start(namespace)
	w.Pools(build.Pool(pool).CIDR("10.0.0.0/12").Obj())
	l := w.begin("kustomize")
	l.creates(50)
	w.RunKubectl("apply", "--server-side", "-k", filepath.Dir(w.overlaid(later, overlay, "later", "kustomization.yaml")))
	w.isUpgraded(namespace)
	l.creates(30)
	suite.Must(w, w.RollOut(w.Context()))
	l.creates(50)
	l.stop()
	l.judge()
	w.isHealthy(namespace)
	w.isTakenOverFromKustomize(namespace, account)

	w.removeFinalizers(namespace, account)
	w.RunKubectl("delete", "--timeout=60s", "--ignore-not-found", "-k", overlay)
	suite.Must(w, w.StopInstalled())
	w.RunKubectl("delete", "validatingadmissionpolicies,validatingadmissionpolicybindings,clusterrolebindings", "cadastre-removal")
	w.isGone(namespace, allKinds, "customresourcedefinitions")
}

// isTakenOverFromKustomize installs a release over the objects that kustomize has installed.
func (w *world) isTakenOverFromKustomize(namespace, account string) {
	w.Helper()
	w.runHelm("install", "taken", filepath.Join(w.root, chart.Directory), "--namespace="+namespace,
		"--set=serviceAccount.name="+account, "--take-ownership", "--force-conflicts")
	w.isHealthy(namespace)
	claim := build.Claim(team, "taken").Pool(pool).Length(32).Obj()
	w.Created(claim)
	if claim.Status.AllocatedCIDR == "" {
		w.Errorf("a claim was answered without a block: %v", claim.Status.Conditions)
	}
}

// overlaid writes a kustomization over a base, and returns its path. kustomize takes no
// absolute path, and resolves links before it compares.
func (w *world) overlaid(text, base string, elements ...string) string {
	w.Helper()
	path := w.write("", elements...)
	into, err := filepath.EvalSymlinks(filepath.Dir(path))
	suite.Must(w, err)
	relative, err := filepath.Rel(into, base)
	suite.Must(w, err)
	return w.write(strings.ReplaceAll(text, "BASE", relative), elements...)
}
