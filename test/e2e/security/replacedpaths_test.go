package security

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/internal/certs"
	"github.com/cadastre-dev/cadastre/internal/testing/balancer"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/webhooks"
)

const (
	replacements = 20
	creators     = 4
	judged       = "judged" // the namespace, the Secret and the configurations of this test
)

// pathReplica represents a replica that serves nothing but paths, on the clock of the test.
type pathReplica struct {
	*certs.Paths
	// late counts the requests on paths that were replaced.
	late atomic.Int64
}

func (r *pathReplica) Judge(ctx context.Context, secret string) certs.Standing {
	standing := r.Paths.Judge(ctx, secret)
	if standing == certs.PathOlder {
		r.late.Add(1)
	}
	return standing
}

// TestCreatesSucceedWhilePathsAreReplaced replaces the path of two replicas many times while clients
// create objects. The clock of the replicas jumps, so that the grace is over before the API server
// has seen the injected path.
func TestCreatesSucceedWhilePathsAreReplaced(t *testing.T) {
	w := &world{suite.Start(t, cluster.Options{Bare: true})}
	w.Namespace(judged)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	replicas := []*pathReplica{w.pathReplica(clock), w.pathReplica(clock)}
	w.judgedByWebhooks(replicas)
	pass := func() {
		t.Helper()
		for range 2 { // a write of the first one is seen in the second one
			for _, r := range replicas {
				_, err := r.Reconcile(t.Context(), reconcile.Request{})
				suite.Must(t, err)
			}
		}
	}
	advance := func(duration time.Duration) {
		t.Helper()
		clock.SetTime(clock.Now().Add(duration))
		pass()
	}
	w.Await("both replicas are ready", func(context.Context) bool {
		pass()
		return replicas[0].Check(nil) == nil && replicas[1].Check(nil) == nil
	})

	ctx, stop := context.WithCancel(t.Context())
	var creating sync.WaitGroup
	var created, refused atomic.Int64
	for n := range creators {
		creating.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: judged, Name: fmt.Sprintf("c-%d-%d", n, i)}}
				switch err := w.Create(ctx, obj); {
				case ctx.Err() != nil:
				case err != nil:
					refused.Add(1)
					t.Errorf("refused: %v", err)
				default:
					created.Add(1)
				}
			}
		})
	}
	old := w.currentPathSecret()
	for range replacements {
		so := created.Load()
		w.Await("some are created", func(context.Context) bool { return created.Load() >= so+3*creators })
		for _, r := range replicas {
			r.Unanswered(w.currentPathSecret())
		}
		advance(10 * time.Minute)
		advance(10 * time.Second) // the handover
		advance(time.Minute)      // the grace
	}
	stop()
	creating.Wait()
	late := func() int64 { return replicas[0].late.Load() + replicas[1].late.Load() }
	made := replicas[0].Replacements()["unanswered"] + replicas[1].Replacements()["unanswered"]
	t.Logf("%d creates while %d paths were replaced: %d refused, %d calls on a path that was replaced", created.Load(), made, refused.Load(), late())
	if made != replacements {
		t.Errorf("%d paths were replaced, want %d", made, replacements)
	}
	w.aLateAPIServerIsAnswered(old, late, pass)
}

// aLateAPIServerIsAnswered makes the API server call a path that was replaced long ago. The client
// tries again by itself, and is served when the API server has the present path.
func (w *world) aLateAPIServerIsAnswered(old string, late func() int64, pass func()) {
	w.Helper()
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Name: judged}, configuration))
	path := strings.Replace(*configuration.Webhooks[0].ClientConfig.URL, w.currentPathSecret(), old, 1)
	configuration.Webhooks[0].ClientConfig.URL = &path
	suite.Must(w, w.Update(w.Context(), configuration))
	strict := w.Client(cluster.NoRetry(w.Config()))
	w.Await("the API server calls the old path", func(ctx context.Context) bool {
		err := strict.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: judged, GenerateName: "late-"}})
		return apierrors.IsServiceUnavailable(err)
	})
	before := late()
	created := make(chan error, 1)
	go func() {
		created <- w.Create(w.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: judged, Name: "late"}})
	}()
	w.Await("the client is asked to try again", func(context.Context) bool { return late() > before })
	pass()
	if err := <-created; err != nil {
		w.Errorf("the client of a late API server: %v", err)
	}
}

func (w *world) currentPathSecret() string {
	w.Helper()
	secret := &corev1.Secret{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Namespace: judged, Name: judged}, secret))
	return string(secret.Data["current"])
}

func (w *world) pathReplica(clock *clocktesting.FakePassiveClock) *pathReplica {
	w.Helper()
	plain := certs.PlainPaths{Mutating: map[string]string{"mutate.example.com": "/judge"}, Validating: map[string]string{"validate.example.com": "/judge"}}
	paths, err := certs.NewPaths(certs.Options{
		Namespace: judged, SecretName: judged, MutatingWebhooks: []string{judged}, ValidatingWebhook: judged, Clock: clock,
	}, plain, w, w)
	suite.Must(w, err)
	return &pathReplica{Paths: paths}
}

// judgedByWebhooks serves the paths of all replicas behind one address, and installs a mutating and
// a validating webhook there that judge every ConfigMap.
func (w *world) judgedByWebhooks(replicas []*pathReplica) {
	w.Helper()
	var addresses []string
	var bundle []byte
	for _, r := range replicas {
		hooks := webhooks.NewServer(webhook.NewServer(webhook.Options{}), r)
		hooks.Register("/judge", &admission.Webhook{Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
			return admission.Allowed("")
		})})
		server := httptest.NewTLSServer(http.HandlerFunc(hooks.WebhookMux().ServeHTTP))
		w.Cleanup(server.Close)
		addresses = append(addresses, server.Listener.Addr().String())
		bundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	}
	before, err := balancer.Start("127.0.0.1:0", addresses...)
	suite.Must(w, err)
	w.Cleanup(func() { suite.Must(w, before.Stop()) })

	none, equivalent, address := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Equivalent, "https://"+before.Addr().String()
	config := admissionregistrationv1.WebhookClientConfig{URL: &address, CABundle: bundle}
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}}
	only := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: judged}}
	w.Created(
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: judged}, Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "mutate.example.com", ClientConfig: config, Rules: rules, NamespaceSelector: only, SideEffects: &none, MatchPolicy: &equivalent, AdmissionReviewVersions: []string{"v1"},
		}}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: judged}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "validate.example.com", ClientConfig: config, Rules: rules, NamespaceSelector: only, SideEffects: &none, MatchPolicy: &equivalent, AdmissionReviewVersions: []string{"v1"},
		}}},
	)
}
