package plugin

import (
	"archive/zip"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// hush is the word that no bundle may have.
const hush = "hush-hush-hush"

// supportBundle writes bundles, and looks for secrets in them.
func (w *world) supportBundle(t *testing.T) {
	secrets := w.hideSecrets(t)
	admin := w.as(t, "")
	admin.runs("kubectl ipam support-bundle -o $DIR/all.zip").ends(command.ExitDone)
	admin.runs("kubectl ipam support-bundle -o $DIR/all.zip").ends(command.ExitConflict)
	admin.runs("kubectl ipam support-bundle -o $DIR/none/all.zip").ends(command.ExitUsage)
	admin.runs("kubectl ipam support-bundle -n team-a -o $DIR/team-a.zip").ends(command.ExitDone)
	all := unpacked(t, filepath.Join(admin.dir, "all.zip"))
	admin.lists(all)
	admin.matches("support-bundle")
	alice := w.as(t, "alice")
	alice.runs("kubectl ipam support-bundle -n team-a -o $DIR/own.zip").ends(command.ExitDone)
	own := unpacked(t, filepath.Join(alice.dir, "own.zip"))
	alice.lists(own)
	alice.matches("support-bundle-tenant")

	for name, text := range all {
		for what, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %s", name, what)
			}
		}
	}
	if claims := all["cadastre/ipclaims.yaml"]; !strings.Contains(claims, "name: batch") || !strings.Contains(claims, "name: apps") {
		t.Errorf("the claims are %s", claims)
	}
	if !strings.Contains(all["events.yaml"], "this event is for the bundle") {
		t.Errorf("the events are %s", all["events.yaml"])
	}
	for name, text := range unpacked(t, filepath.Join(admin.dir, "team-a.zip")) {
		if strings.Contains(text, "namespace: team-b\n") && strings.HasPrefix(name, "cadastre/") && name != "cadastre/ippools.yaml" {
			t.Errorf("the bundle of team-a has %s with objects of team-b", name)
		}
	}
	for name, text := range own {
		if strings.Contains(text, "team-b") {
			t.Errorf("the tenant's bundle has %s with team-b", name)
		}
	}
}

// hideSecrets puts a word into all secret places, and returns it with the existing secrets, by
// their meaning.
func (w *world) hideSecrets(t *testing.T) map[string]string {
	secrets := map[string]string{"the word": hush}
	for _, namespace := range []string{"team-a", cluster.Namespace} {
		w.Created(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "hush"}, StringData: map[string]string{"password": hush}})
	}
	list := &corev1.SecretList{}
	suite.Must(t, w.List(t.Context(), list))
	for i := range list.Items {
		for key, value := range list.Items[i].Data {
			if len(value) > 20 && key != "since" {
				secrets["Secret "+list.Items[i].Name+", "+key] = string(value)
			}
		}
	}
	config, err := w.OperatorConfig(t.Context())
	suite.Must(t, err)
	secrets["the operator's token"] = config.BearerToken

	claim := &v1alpha1.IPClaim{}
	suite.Must(t, w.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "apps"}, claim))
	w.applied(claim, hush)
	t.Cleanup(func() { w.applied(claim, "") })
	w.operatorPod(t)
	w.tellsThePath(t, claim)
	return secrets
}

// operatorPod makes a pod like the operator's, with the word in its environment. No kubelet
// runs it.
func (w *world) operatorPod(t *testing.T) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "cadastre-pod", Labels: map[string]string{"app.kubernetes.io/name": "cadastre"}},
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "manager", Image: "registry.example/cadastre:v0.1.0", Env: []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://user:" + hush + "@proxy:3128"}},
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
	w.Created(pod)
	t.Cleanup(func() { w.Deleted(pod) })
}

// applied sets the annotation in which kubectl apply keeps all fields of a claim, or removes it
// if the text is empty.
func (w *world) applied(claim *v1alpha1.IPClaim, text string) {
	w.Helper()
	patch := `{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":null}}}`
	if text != "" {
		patch = strings.Replace(patch, "null", `"`+text+`"`, 1)
	}
	suite.Must(w, w.Patch(context.Background(), claim, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// tellsThePath makes an event about a claim with the path of a webhook in it, as the API server's
// answers have it.
func (w *world) tellsThePath(t *testing.T, claim *v1alpha1.IPClaim) {
	t.Helper()
	configuration := &admissionv1.MutatingWebhookConfiguration{}
	suite.Must(t, w.Get(t.Context(), client.ObjectKey{Name: "zz-cadastre-mutating-webhook-configuration"}, configuration))
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: claim.Namespace, Name: "for-the-bundle"},
		InvolvedObject: corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "IPClaim", Namespace: claim.Namespace, Name: claim.Name},
		Reason:         "Test", Type: corev1.EventTypeNormal,
		Message: "this event is for the bundle: Post https://svc" + *configuration.Webhooks[0].ClientConfig.Service.Path + ": EOF",
	}
	w.Created(event)
	t.Cleanup(func() { w.Deleted(event) })
}

// unpacked returns the texts of the files in a ZIP file, by their names.
func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()
	info, err := os.Stat(path)
	suite.Must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("%s can be read by others: %s", path, info.Mode())
	}
	archive, err := zip.OpenReader(path)
	suite.Must(t, err)
	defer archive.Close()
	files := map[string]string{}
	for _, file := range archive.File {
		reader, err := file.Open()
		suite.Must(t, err)
		text, err := io.ReadAll(reader)
		suite.Must(t, err)
		files[file.Name] = string(text)
	}
	return files
}

var objectCount = regexp.MustCompile(`(?m)^  objects: \d+\n`)

// lists adds the index of a bundle to the transcript, without counts: those of events vary.
func (r *terminal) lists(files map[string]string) {
	r.script.WriteString("# index.yaml\n" + objectCount.ReplaceAllString(files["index.yaml"], "") + "\n")
}
