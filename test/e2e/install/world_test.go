// Package install installs the operator with the tools that people use, upgrades it while claims
// arrive, and removes it as documented.
package install

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/installation"
	"github.com/cadastre-dev/cadastre/internal/operator"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/helm"
)

// definitions lists the CRDs, whose kinds are the register.
const definitions = "ipallocations.ipam.cadastre.dev,ipclaims.ipam.cadastre.dev,ippools.ipam.cadastre.dev,localippools.ipam.cadastre.dev,ipclasses.ipam.cadastre.dev"

// world holds a control plane on which the operator is installed by one tool after the other.
type world struct {
	*suite.World
	root, home string
	helm       *helm.Helm
}

// TestInstall uses one control plane for all tools: the remains of one must not disturb the next.
func TestInstall(t *testing.T) {
	root := suite.ModuleRoot(t)
	home := t.TempDir()
	program, err := helm.New(root, home)
	suite.Must(t, err)
	w := &world{World: suite.Start(t, cluster.Options{Bare: true, ControllerManager: true}), root: root, home: home, helm: program}
	w.Namespace(team)
	for _, tool := range []struct {
		name string
		test func(*world)
	}{
		{"Helm", (*world).byHelm},
		{"kustomize", (*world).byKustomize},
		{"cert-manager", (*world).withCertManager},
	} {
		if !t.Run(tool.name, func(t *testing.T) {
			tool.test(&world{World: w.For(t), root: root, home: home, helm: program})
		}) {
			return // the next steps would fail because of the remains
		}
	}
}

// start runs two replicas of the operator installed in a namespace, and checks that nothing is
// missing.
func (w *world) start(namespace string) {
	w.Helper()
	suite.Must(w, w.AwaitKinds(w.Context()))
	suite.Must(w, w.StartInstalled(w.Context(), namespace, 2))
	w.isHealthy(namespace)
}

// isHealthy waits until kubectl ipam doctor finds nothing wrong, except the Pods, which do not run
// here. A replica may lead a moment after it is ready.
func (w *world) isHealthy(namespace string) {
	w.Helper()
	found := installation.Namespace(w.Context(), w)
	if found != namespace {
		w.Errorf("doctor finds the operator in namespace %s, want %s", found, namespace)
	}
	doctor := installation.Doctor{
		Client: w, Namespace: team, Operator: found, ServiceAccount: installation.AccountIn(w.Context(), w, found), Now: time.Now,
	}
	failed := func() (all []installation.Check) {
		for _, check := range doctor.Run(w.Context()) {
			if check.Result == installation.ResultFailed && check.Name != "deployment" {
				all = append(all, check)
			}
		}
		return all
	}
	if err := wait.PollUntilContextTimeout(w.Context(), time.Second, w.Patience, true, func(context.Context) (bool, error) {
		return len(failed()) == 0, nil
	}); err != nil {
		w.Errorf("doctor: %+v", failed())
	}
}

// removeFinalizers acts as `kubectl exec deploy/cadastre-controller-manager -- /manager
// remove-finalizers` does in a cluster, once the operator has the right to it.
func (w *world) removeFinalizers(namespace, account string) {
	w.Helper()
	w.RunKubectl("create", "clusterrolebinding", "cadastre-removal", "--clusterrole=cadastre-removal", "--serviceaccount="+namespace+":"+account)
	asOperator, err := w.OperatorConfig(w.Context())
	suite.Must(w, err)
	o := operator.Options{Namespace: namespace, ServiceAccount: account}
	suite.Must(w, operator.RemoveFinalizers(w.Context(), asOperator, o, w.Output()))
}

// runHelm fails the test if Helm fails, or takes too long.
func (w *world) runHelm(args ...string) string {
	w.Helper()
	out, err := w.tryHelm(args...)
	suite.Must(w, err)
	return out
}

func (w *world) tryHelm(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	begin := time.Now()
	out, err := w.helm.Run(ctx, append(args, "--kubeconfig="+w.Kubeconfig())...)
	w.Logf("helm %s %s took %v", args[0], args[1], time.Since(begin).Round(time.Millisecond))
	return out, err
}

// write writes a file below home, and returns its path.
func (w *world) write(content string, elements ...string) string {
	w.Helper()
	path := filepath.Join(append([]string{w.home}, elements...)...)
	suite.Must(w, os.MkdirAll(filepath.Dir(path), 0o700))
	suite.Must(w, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// register returns the blocks of allocations of the load's pool, by name.
func (w *world) register() map[string]string {
	w.Helper()
	records := &v1alpha1.IPAllocationList{}
	suite.Must(w, w.List(w.Context(), records))
	blocks := map[string]string{}
	for i := range records.Items {
		blocks[records.Items[i].Namespace+"/"+records.Items[i].Name] = records.Items[i].Spec.CIDR
	}
	return blocks
}

// judge fails if a claim of the load was refused, was lost, or shares its block.
func (l *load) judge() {
	l.w.Helper()
	l.w.Log(l)
	if len(l.refused) > 0 {
		l.w.Errorf("%d requests were refused: %v", len(l.refused), l.refused)
	}
	if l.without > 0 {
		l.w.Errorf("%d claims were answered without a block", l.without)
	}
	l.w.keeps(l.held)
}

// keeps fails if a claim does not hold its block by a record.
func (w *world) keeps(held map[string]string) {
	w.Helper()
	records, owner := w.register(), map[netip.Prefix]string{}
	for name, block := range held {
		claim := build.Claim(team, name).Obj()
		if err := w.Get(w.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
			w.Errorf("claim %s is lost: %v", name, err)
			continue
		}
		record := team + "/" + claim.Spec.AllocationName
		if claim.Status.AllocatedCIDR != block || records[record] != block {
			w.Errorf("claim %s has %q and its record %q, want %s", name, claim.Status.AllocatedCIDR, records[record], block)
		}
		prefix := netip.MustParsePrefix(block)
		if other, twice := owner[prefix]; twice {
			w.Errorf("%s is held by %s and %s", block, name, other)
		}
		owner[prefix] = name
	}
}

// isGone fails if objects of the operator are left.
func (w *world) isGone(namespace string, kinds ...string) {
	w.Helper()
	for _, kind := range kinds {
		if left := w.RunKubectl("get", kind, "--all-namespaces", "-l", "app.kubernetes.io/name=cadastre", "-o", "name"); left != "" {
			w.Errorf("left: %s", left)
		}
	}
	if namespace == "" {
		return
	}
	suite.Must(w, client.IgnoreNotFound(w.Delete(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})))
	w.Gone(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
}
