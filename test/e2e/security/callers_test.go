package security

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

const pathSecret = "cadastre-webhook-path"

// configurations returns those of the operator's webhooks.
func (w *world) configurations() ([]*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration) {
	w.Helper()
	var mutating []*admissionregistrationv1.MutatingWebhookConfiguration
	for _, name := range []string{manifests.MutatingWebhooks, manifests.ClusterWebhooks} {
		configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
		suite.Must(w, w.Get(w.Context(), client.ObjectKey{Name: name}, configuration))
		mutating = append(mutating, configuration)
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Name: manifests.ValidatingWebhooks}, validating))
	return mutating, validating
}

// clientConfigs returns those of all webhooks, by name. The one name that is in two configurations
// stands for the mutating webhook.
func (w *world) clientConfigs() map[string]admissionregistrationv1.WebhookClientConfig {
	w.Helper()
	configs := map[string]admissionregistrationv1.WebhookClientConfig{}
	mutating, validating := w.configurations()
	for _, webhook := range validating.Webhooks {
		configs[webhook.Name] = webhook.ClientConfig
	}
	for _, configuration := range mutating {
		for _, webhook := range configuration.Webhooks {
			configs[webhook.Name] = webhook.ClientConfig
		}
	}
	return configs
}

// secretPaths returns the paths at which the API server calls the webhooks, by name.
func (w *world) secretPaths() map[string]string {
	w.Helper()
	paths := map[string]string{}
	for name, config := range w.clientConfigs() {
		if config.Service.Path == nil {
			w.Fatalf("%s has no path", name)
		}
		paths[name] = *config.Service.Path
	}
	return paths
}

// plainPath returns a path without the secret.
func plainPath(path string) string { return path[strings.LastIndex(path, "/"):] }

// creation returns a review of the kind that made records for any caller: a claim of a pool, with
// groups that its sender made up.
func creation(namespace, pool string) *strings.Reader {
	return strings.NewReader(fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE","namespace":%q,
		"kind":{"group":"ipam.cadastre.dev","version":"v1alpha1","kind":"IPClaim"},"userInfo":{"username":"forged","groups":["system:masters"]},
		"object":{"apiVersion":"ipam.cadastre.dev/v1alpha1","kind":"IPClaim","metadata":{"generateName":"forged-"},"spec":{"prefixLength":32,"poolRef":{"name":%q}}}}}`, namespace, pool))
}

func (w *world) records(namespace string) int {
	w.Helper()
	records := &v1alpha1.IPAllocationList{}
	suite.Must(w, w.List(w.Context(), records, client.InNamespace(namespace)))
	return len(records.Items)
}

// onlyTheSecretIsAnswered asks without any credential, at every path.
func (w *world) onlyTheSecretIsAnswered() {
	w.Namespace("victim")
	w.Pools(build.Pool("asked").CIDR("10.30.0.0/24").Obj())
	called := w.secretPaths()
	secrets := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(called)) {
		plain := plainPath(called[name])
		secrets[strings.TrimSuffix(called[name], plain)] = true
		for _, path := range []string{plain, "/", "/" + strings.Repeat("a", 26) + plain, called[name] + "/", called[name] + "/x"} {
			if code, answer := w.post(suite.Insecure(20*time.Second), path, creation("victim", "asked")); code != http.StatusNotFound {
				w.Errorf("%s at %s: %d %s, want %d", name, path, code, answer, http.StatusNotFound)
			}
		}
	}
	if len(secrets) != 1 || secrets[""] {
		w.Errorf("the paths have %d secrets, want one", len(secrets))
	}
	if n := w.records("victim"); n != 0 {
		w.Errorf("%d blocks were recorded without a holder", n)
	}
}

// pathsAreReplaced asks with a secret until it is not accepted any more, while claims are
// created: 20 in a second, as it takes a minute.
func (w *world) pathsAreReplaced() {
	ctx, stop := context.WithCancel(w.Context())
	defer stop()
	as := w.Client(cluster.NoRetry(w.Config()))
	var creating sync.WaitGroup
	made, pace := 0, flowcontrol.NewTokenBucketRateLimiter(20, 1)
	creating.Go(func() {
		for pace.Wait(ctx) == nil {
			claim := build.Claim("victim", "").Generated("beside-").Pool("asked").Length(32).Obj()
			err := as.Create(ctx, claim)
			if apierrors.IsTooManyRequests(err) { // the machine is too busy to record its block in time
				continue
			}
			if err != nil && ctx.Err() == nil {
				w.Errorf("a create while the path is replaced: %v", err)
			}
			made++
			if err := as.Delete(ctx, claim); err != nil && ctx.Err() == nil {
				w.Errorf("its deletion: %v", err)
			}
		}
	})
	asking := suite.Insecure(20 * time.Second)
	old := w.pathIsReplaced(asking)
	w.Patience = 2 * time.Minute // the grace is one
	w.Await("the old secret is not accepted any more", func(context.Context) bool {
		code, answer := w.post(asking, old, strings.NewReader("{}"))
		if code != http.StatusOK {
			w.Fatalf("the path before is answered with %d %s", code, answer)
		}
		return strings.Contains(string(answer), `"code":503`) && strings.Contains(string(answer), `"retryAfterSeconds":1`)
	})
	stop()
	creating.Wait()
	if made == 0 {
		w.Errorf("no create was answered while the path was replaced")
	}
	w.Logf("%d creates while the path was replaced", made)
}

// pathIsReplaced deletes the Secret of the paths, and returns a path as it was before. It asks at
// the old path and at the new one, by way of a client.
func (w *world) pathIsReplaced(httpClient *http.Client) (old string) {
	w.Helper()
	const name = "update.ipclaim.ipam.cadastre.dev"
	old = w.secretPaths()[name]
	w.Deleted(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: pathSecret}})
	w.Await("the new secret is injected", func(context.Context) bool { return w.secretPaths()[name] != old })
	fresh := w.secretPaths()[name]
	for path, want := range map[string]int{old: http.StatusOK, fresh: http.StatusOK, plainPath(old): http.StatusNotFound} {
		code, answer := w.post(httpClient, path, strings.NewReader("{}"))
		if code != want || strings.Contains(string(answer), "503") {
			w.Errorf("%s: %d %s, want %d", path, code, answer, want)
		}
	}
	w.Created(build.Claim("victim", "after").Pool("asked").Length(32).Obj())
	return old
}

// manifestsLeavePathsAlone applies the manifests as a tool does that would own, and fight for,
// their fields. Fields for which the API server has defaults are in conflict with the user that
// applied the manifests first, but none with the operator.
func (w *world) manifestsLeavePathsAlone() {
	before := w.clientConfigs()
	if err := w.ReinstallAs(w.Context(), "another"); err != nil && strings.Contains(err.Error(), `"cadastre-`) {
		w.Errorf("the manifests are in conflict with the operator: %v", err)
	}
	suite.Must(w, w.ReinstallAs(w.Context(), "gitops", "--force-conflicts"))
	suite.Must(w, w.ReinstallAs(w.Context(), "gitops"))
	for name, after := range w.clientConfigs() {
		if *after.Service.Path != *before[name].Service.Path || string(after.CABundle) != string(before[name].CABundle) {
			w.Errorf("%s was changed: its path is %s, and was %s", name, *after.Service.Path, *before[name].Service.Path)
		}
	}
	w.Created(build.Claim("victim", "applied").Pool("asked").Length(32).Obj())
}
