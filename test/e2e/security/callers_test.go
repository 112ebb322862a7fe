package security

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/test/framework/build"
	"github.com/cadastre-dev/cadastre/test/framework/cluster"
)

const (
	mutatingWebhooks   = "zz-cadastre-mutating-webhook-configuration"
	validatingWebhooks = "cadastre-validating-webhook-configuration"
	pathSecret         = "cadastre-webhook-path"
)

// clientConfigs are those of all webhooks, by name. The one name that is in both
// configurations stands for the mutating webhook.
func (w *world) clientConfigs() map[string]admissionregistrationv1.WebhookClientConfig {
	w.t.Helper()
	configs := map[string]admissionregistrationv1.WebhookClientConfig{}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	must(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: validatingWebhooks}, validating))
	for _, webhook := range validating.Webhooks {
		configs[webhook.Name] = webhook.ClientConfig
	}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	must(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: mutatingWebhooks}, mutating))
	for _, webhook := range mutating.Webhooks {
		configs[webhook.Name] = webhook.ClientConfig
	}
	return configs
}

// secretPaths are the paths at which the API server calls the webhooks, by name.
func (w *world) secretPaths() map[string]string {
	w.t.Helper()
	paths := map[string]string{}
	for name, config := range w.clientConfigs() {
		if config.Service.Path == nil {
			w.t.Fatalf("%s has no path", name)
		}
		paths[name] = *config.Service.Path
	}
	return paths
}

// plainPath is a path without the secret.
func plainPath(path string) string { return path[strings.LastIndex(path, "/"):] }

// creation is a review of the kind that made records for anybody: a claim of a pool,
// with groups that its sender made up.
func creation(namespace, pool string) *strings.Reader {
	return strings.NewReader(fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE","namespace":%q,
		"kind":{"group":"ipam.cadastre.dev","version":"v1alpha1","kind":"IPClaim"},"userInfo":{"username":"forged","groups":["system:masters"]},
		"object":{"apiVersion":"ipam.cadastre.dev/v1alpha1","kind":"IPClaim","metadata":{"generateName":"forged-"},"spec":{"prefixLength":32,"poolRef":{"name":%q}}}}}`, namespace, pool))
}

func (w *world) records(namespace string) int {
	w.t.Helper()
	records := &v1alpha1.IPAllocationList{}
	must(w.t, w.List(w.t.Context(), records, client.InNamespace(namespace)))
	return len(records.Items)
}

// onlyTheSecretIsAnswered asks without any credential, at every path.
func (w *world) onlyTheSecretIsAnswered() {
	w.namespace("victim", "")
	w.ready(build.Pool("asked").CIDR("10.30.0.0/24").Obj())
	called := w.secretPaths()
	secrets := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(called)) {
		plain := plainPath(called[name])
		secrets[strings.TrimSuffix(called[name], plain)] = true
		for _, path := range []string{plain, "/", "/" + strings.Repeat("a", 26) + plain, called[name] + "/", called[name] + "/x"} {
			if code, answer := w.post(insecure(), path, creation("victim", "asked")); code != http.StatusNotFound {
				w.t.Errorf("%s at %s: %d %s, want %d", name, path, code, answer, http.StatusNotFound)
			}
		}
	}
	if len(secrets) != 1 || secrets[""] {
		w.t.Errorf("the paths have %d secrets, want one", len(secrets))
	}
	if n := w.records("victim"); n != 0 {
		w.t.Errorf("%d blocks were recorded for nobody", n)
	}
}

// rotated has the path secret say that it is so old.
func (w *world) rotated(age time.Duration) {
	w.t.Helper()
	secret := &corev1.Secret{}
	must(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: pathSecret}, secret))
	before := secret.DeepCopy()
	secret.Data["since"] = []byte(time.Now().Add(-age).UTC().Format(time.RFC3339))
	must(w.t, w.Patch(w.t.Context(), secret, client.MergeFrom(before)))
}

func (w *world) pathsAreRotated() { w.pathsAreRotatedFor(insecure()) }

// pathsAreRotatedFor asks with a secret that was replaced, by way of a client.
func (w *world) pathsAreRotatedFor(through *http.Client) {
	const name = "update.ipclaim.ipam.cadastre.dev"
	old := w.secretPaths()[name]
	w.rotated(25 * time.Hour)
	w.eventually("the new secret is injected", func(context.Context) bool { return w.secretPaths()[name] != old })
	fresh := w.secretPaths()[name]
	for path, want := range map[string]int{old: http.StatusOK, fresh: http.StatusOK, plainPath(old): http.StatusNotFound} {
		if code, answer := w.post(through, path, strings.NewReader("{}")); code != want {
			w.t.Errorf("%s: %d %s, want %d", path, code, answer, want)
		}
	}
	w.create(build.Claim("victim", "after").Pool("asked").Length(32).Obj())

	// The overlap is over, but was not when the operator started: it replaces a secret that
	// old at once, and the paths change again when the next one is handed over.
	w.rotated(time.Hour + time.Second)
	w.eventually("the old secret is not accepted any more", func(context.Context) bool {
		code, _ := w.post(through, old, strings.NewReader("{}"))
		return code == http.StatusNotFound
	})
	w.eventually("the API server calls what is accepted", func(ctx context.Context) bool {
		return w.Create(ctx, build.Claim("victim", "").Generated("later-").Pool("asked").Length(32).Obj()) == nil
	})
}

// manifestsLeavePathsAlone applies the manifests as a tool does that would own, and
// fight for, what they say. Fields for which the API server has defaults are in
// conflict with whoever applied the manifests first, but none with the operator.
func (w *world) manifestsLeavePathsAlone() {
	before := w.clientConfigs()
	if err := w.ReinstallAs(w.t.Context(), "another"); err != nil && strings.Contains(err.Error(), `"cadastre-`) {
		w.t.Errorf("what the manifests say is in conflict with the operator: %v", err)
	}
	must(w.t, w.ReinstallAs(w.t.Context(), "gitops", "--force-conflicts"))
	must(w.t, w.ReinstallAs(w.t.Context(), "gitops"))
	for name, after := range w.clientConfigs() {
		if *after.Service.Path != *before[name].Service.Path || string(after.CABundle) != string(before[name].CABundle) {
			w.t.Errorf("%s was changed: %+v", name, after)
		}
	}
	w.create(build.Claim("victim", "applied").Pool("asked").Length(32).Obj())
}
