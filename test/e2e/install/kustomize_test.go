package install

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/installation"
	"github.com/cadastre-dev/cadastre/hack/chart"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/installed"
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
	installed.IsHealthy(w.World, namespace, team)
	w.isTakenOverFromKustomize(namespace, account)

	installed.PrepareRemoval(w.World, namespace, account)
	w.RunKubectl("delete", "--timeout=60s", "--ignore-not-found", "-k", overlay)
	suite.Must(w, w.StopInstalled())
	installed.FinishRemoval(w.World)
	w.isGone(namespace, allKinds, "customresourcedefinitions")
}

// isTakenOverFromKustomize installs a release over the objects that kustomize has installed.
func (w *world) isTakenOverFromKustomize(namespace, account string) {
	w.Helper()
	w.runHelm("install", "taken", filepath.Join(w.root, chart.Directory), "--namespace="+namespace,
		"--set=serviceAccount.name="+account, "--take-ownership", "--force-conflicts")
	installed.IsHealthy(w.World, namespace, team)
	w.answers("taken")
}

// answers creates a claim, and expects that it has a block at once.
func (w *world) answers(name string) {
	w.Helper()
	claim := build.Claim(team, name).Pool(pool).Length(32).Obj()
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

// withCertManager installs the operator with certificates for its webhooks that the controllers of
// cert-manager issue: by kustomize, and by Helm under other names.
func (w *world) withCertManager() {
	suite.Must(w, w.InstallCertManager(w.Context()))
	issues, err := w.NewCertManager()
	suite.Must(w, err)
	suite.Must(w, issues.Start(w.Context()))
	w.Cleanup(func() { _ = issues.Stop() })

	const namespace = "cadastre-system"
	overlay := filepath.Join(w.root, "config", "overlays", "cert-manager")
	w.RunKubectl("apply", "--server-side", "-k", overlay)
	w.start(namespace)
	w.servesIssued(namespace)
	w.Pools(build.Pool(pool).CIDR("10.0.0.0/12").Obj())
	l := w.begin("cert-manager")
	l.creates(30)
	w.renews(namespace)
	l.creates(30)
	l.stop()
	l.judge()
	installed.IsHealthy(w.World, namespace, team)
	installed.PrepareRemoval(w.World, namespace, "cadastre-controller-manager")
	w.RunKubectl("delete", "--timeout=60s", "--ignore-not-found", "-k", overlay)
	suite.Must(w, w.StopInstalled())
	installed.FinishRemoval(w.World)
	w.isGone(namespace, allKinds, "customresourcedefinitions", "certificates,issuers")

	w.chartWithCertManager("registry", "registrar")
}

// chartWithCertManager installs the chart under names of which none is a default.
func (w *world) chartWithCertManager(namespace, account string) {
	w.Helper()
	w.runHelm("install", "ipam", filepath.Join(w.root, chart.Directory), "--create-namespace", "--namespace="+namespace,
		"--set=serviceAccount.name="+account, "--set=certManager.enabled=true")
	w.start(namespace)
	w.servesIssued(namespace)
	w.Pools(build.Pool(pool).CIDR("10.0.0.0/12").Obj())
	w.answers("certified")
	installed.PrepareRemoval(w.World, namespace, account)
	w.runHelm("uninstall", "ipam", "--namespace="+namespace)
	suite.Must(w, w.StopInstalled())
	w.removeRegister()
	w.isGone(namespace, allKinds, "customresourcedefinitions", "certificates,issuers")
}

// certificate returns the Secret that cert-manager writes.
func (w *world) certificate(namespace string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: installation.CertificateSecret}}
}

// servesIssued waits until all replicas serve the certificate that cert-manager has issued, and
// that alone.
func (w *world) servesIssued(namespace string) {
	w.Helper()
	issued := w.certificate(namespace)
	suite.Must(w, w.Get(w.Context(), client.ObjectKeyFromObject(issued), issued))
	if by := issued.Annotations["cert-manager.io/certificate-name"]; by != "cadastre-webhook" {
		w.Fatalf("the Secret is of the Certificate %q, want cadastre-webhook", by)
	}
	first, _ := pem.Decode(issued.Data[corev1.TLSCertKey])
	for _, manager := range w.Managers {
		if !manager.Running() {
			continue
		}
		w.Await(manager.Name+" serves the certificate of cert-manager", func(ctx context.Context) bool {
			dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // the API server verifies it
			connection, err := dialer.DialContext(ctx, "tcp", manager.WebhookAddress)
			if err != nil {
				return false
			}
			defer func() { _ = connection.Close() }()
			served := connection.(*tls.Conn).ConnectionState().PeerCertificates
			return bytes.Equal(served[0].Raw, first.Bytes)
		})
	}
}

// renews deletes the certificate, so that cert-manager issues another with another key.
func (w *world) renews(namespace string) {
	w.Helper()
	old := w.certificate(namespace)
	suite.Must(w, w.Get(w.Context(), client.ObjectKeyFromObject(old), old))
	w.Deleted(w.certificate(namespace))
	w.Await("cert-manager has issued another certificate", func(ctx context.Context) bool {
		renewed := w.certificate(namespace)
		return w.Get(ctx, client.ObjectKeyFromObject(renewed), renewed) == nil && len(renewed.Data[corev1.TLSPrivateKeyKey]) > 0 &&
			!bytes.Equal(renewed.Data[corev1.TLSPrivateKeyKey], old.Data[corev1.TLSPrivateKeyKey])
	})
	w.servesIssued(namespace)
}
