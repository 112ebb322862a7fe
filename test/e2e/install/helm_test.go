package install

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/hack/chart"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/installed"
)

// allKinds lists the kinds of objects that the manifests install, beside CRDs.
const allKinds = "deployments,services,serviceaccounts,poddisruptionbudgets,networkpolicies,roles,rolebindings,clusterroles,clusterrolebindings," +
	"mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings,flowschemas,prioritylevelconfigurations"

// byHelm installs the chart under names of which none is a default.
func (w *world) byHelm() {
	const namespace, account, release = "addresses", "registrar", "ipam"
	in := []string{"--namespace=" + namespace, "--set=serviceAccount.name=" + account, "--set=hubProvisioner.enabled=true", "--set=hubProvisioner.namespace=cluster-east"}
	source := filepath.Join(w.root, chart.Directory)

	w.runHelm(append([]string{"install", release, source, "--create-namespace"}, in...)...)
	w.start(namespace)
	w.Pools(build.Pool(pool).CIDR("10.0.0.0/12").Obj())
	l := w.begin("helm")
	l.creates(50)
	w.runHelm(append([]string{"upgrade", release, w.newer(source), "--set=flags.workers=4"}, in...)...)
	w.isUpgraded(namespace)
	l.creates(30)
	suite.Must(w, w.RollOut(w.Context()))
	l.creates(50)
	l.stop()
	l.judge()
	installed.IsHealthy(w.World, namespace, team)

	w.keepsTheRegister(l, release, namespace)
	late, released := w.claimMeanwhile(l)
	w.isTakenOver(source, release, append(in, "--set=flags.orphan-grace=2s")) // a deletion that was not seen
	w.start(namespace)
	w.Bound(late)
	l.held[late.Name] = late.Status.AllocatedCIDR
	w.keeps(l.held)
	w.Gone(released)

	installed.PrepareRemoval(w.World, namespace, account)
	w.runHelm("uninstall", "second", "--namespace="+namespace)
	suite.Must(w, w.StopInstalled()) // in a cluster it goes with its Deployment
	w.removeRegister()
	w.isGone(namespace, allKinds, "customresourcedefinitions")
}

// newer returns a later release of a chart: it has another version, and a CRD has another field.
func (w *world) newer(source string) string {
	w.Helper()
	into := filepath.Join(w.home, "newer")
	suite.Must(w, os.CopyFS(into, os.DirFS(source)))
	w.edit(filepath.Join(into, "Chart.yaml"), "version: 0.1.0", "version: 0.2.0")
	w.edit(filepath.Join(into, "templates", "crds.yaml"), "    shortNames:\n    - ippool\n", "    shortNames:\n    - ippool\n    - addressspace\n")
	return into
}

// edit replaces a text that is in a file once.
func (w *world) edit(path, old, text string) {
	w.Helper()
	content, err := os.ReadFile(path)
	suite.Must(w, err)
	if strings.Count(string(content), old) != 1 {
		w.Fatalf("%s has %q %d times", path, old, strings.Count(string(content), old))
	}
	suite.Must(w, os.WriteFile(path, []byte(strings.Replace(string(content), old, text, 1)), 0o600))
}

// isUpgraded fails if the CRD or the Deployment is not that of the later release.
func (w *world) isUpgraded(namespace string) {
	w.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Name: "ippools.ipam.cadastre.dev"}, definition))
	if !slices.Contains(definition.Spec.Names.ShortNames, "addressspace") {
		w.Errorf("the CRD was not upgraded: its short names are %v", definition.Spec.Names.ShortNames)
	}
	deployment := &appsv1.Deployment{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: "cadastre-controller-manager"}, deployment))
	if args := deployment.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--workers=4") {
		w.Errorf("the Deployment was not upgraded: its flags are %v", args)
	}
}

// keepsTheRegister uninstalls the release: all but the CRDs goes, and the held blocks stay.
func (w *world) keepsTheRegister(l *load, release, namespace string) {
	w.Helper()
	before := w.register()
	w.runHelm("uninstall", release, "--namespace="+namespace)
	suite.Must(w, w.StopInstalled())
	w.isGone("", allKinds)
	if diff := cmp.Diff(before, w.register()); diff != "" {
		w.Errorf("helm uninstall has changed the register (-before +after):\n%s", diff)
	}
	w.keeps(l.held)
}

// claimMeanwhile deletes a claim while nothing is installed but CRDs, and creates another, which
// waits. It returns that, and the record of the first, which still exists.
func (w *world) claimMeanwhile(l *load) (late *v1alpha1.IPClaim, record *v1alpha1.IPAllocation) {
	w.Helper()
	var released string
	for released = range l.held {
		break
	}
	claim := build.Claim(team, released).Obj()
	suite.Must(w, w.Get(w.Context(), client.ObjectKeyFromObject(claim), claim))
	w.Deleted(claim)
	w.Gone(claim)
	delete(l.held, released)
	record = &v1alpha1.IPAllocation{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Namespace: team, Name: claim.Spec.AllocationName}, record))
	late = build.Claim(team, "meanwhile").Pool(pool).Length(32).Obj()
	w.Created(late)
	if late.Status.AllocatedCIDR != "" {
		w.Errorf("without operator a claim got %s", late.Status.AllocatedCIDR)
	}
	return late, record
}

// isTakenOver installs the chart over the CRDs that a release has left, under another name. Helm
// requires a flag for it.
func (w *world) isTakenOver(source, before string, in []string) {
	w.Helper()
	install := append([]string{"install", "second", source}, in...)
	if _, err := w.tryHelm(install...); err == nil || !strings.Contains(err.Error(), before) {
		w.Errorf("another release takes the CRDs of %s without the flag: %v", before, err)
	}
	w.runHelm(append(install, "--take-ownership")...)
}

// removeRegister deletes the CRDs, and with them all records, once no object has a finalizer.
func (w *world) removeRegister() {
	w.Helper()
	w.RunKubectl("delete", "crd", "--timeout=60s", "-l", "cluster.x-k8s.io/provider=ipam-cadastre")
	installed.FinishRemoval(w.World)
	for name := range strings.SplitSeq(definitions, ",") {
		err := w.Get(w.Context(), client.ObjectKey{Name: name}, &apiextensionsv1.CustomResourceDefinition{})
		if !apierrors.IsNotFound(err) {
			w.Errorf("%s is still there: %v", name, err)
		}
	}
}
