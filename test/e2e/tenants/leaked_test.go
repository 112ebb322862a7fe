package tenants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// Answers that do not come from the API server.
var (
	errCutOff       = errors.New(cutOff)
	errPathTold     = errors.New(pathTold)
	errNoConnection = errors.New(noConnection)
	errForged       = errors.New(forged)
)

// secretPath finds a path of the webhooks in the answer to a request.
var secretPath = regexp.MustCompile(`/[a-z2-7]{26}/[a-z0-9-]+`)

// createImpatiently creates a claim and does not wait for the answer, or not as long as it takes. An answer
// that has the path of a webhook is recorded.
func (h *hostile) createImpatiently(ctx context.Context) error {
	claim := build.Claim(hostileNamespace, h.name()).Class("hosts").Obj()
	claim.APIVersion, claim.Kind = v1alpha1.GroupVersion.String(), "IPClaim"
	text, err := json.Marshal(claim)
	if err != nil {
		return err
	}
	within := time.Duration(1+h.random.IntN(40)) * time.Millisecond
	address := h.server + "/apis/" + claim.APIVersion + "/namespaces/" + claim.Namespace + "/ipclaims"
	if h.random.IntN(2) == 0 {
		address += "?timeout=" + within.String()
	} else {
		waits, stop := context.WithTimeout(ctx, within)
		defer stop()
		ctx = waits
	}
	code, answer, err := post(ctx, h.raw, address, string(text))
	switch {
	case code == http.StatusNotFound:
		return fmt.Errorf("%s: %s", address, answer)
	case err != nil, code == http.StatusGatewayTimeout:
		return errCutOff
	case code == http.StatusCreated:
		h.claims = append(h.claims, claim)
		return nil
	}
	if leakedPath := secretPath.FindString(answer); leakedPath != "" {
		h.path.Store(&leakedPath)
		return fmt.Errorf("%w: %s", errPathTold, answer)
	}
	if strings.Contains(answer, "context deadline exceeded") || strings.Contains(answer, "context canceled") {
		return errCutOff
	}
	status := &apierrors.StatusError{}
	if err := json.Unmarshal([]byte(answer), &status.ErrStatus); err != nil {
		return err
	}
	return status
}

// leakedPath calls a webhook by itself, by a path that it knows, as if the honest tenant created a
// claim.
func (h *hostile) leakedPath(ctx context.Context) error {
	_, _, err := h.forgeReview(ctx)
	if err != nil {
		return errNoConnection
	}
	return errForged
}

func (h *hostile) forgeReview(ctx context.Context) (int, string, error) {
	review := fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE","namespace":%[1]q,
		"kind":{"group":"ipam.cadastre.dev","version":"v1alpha1","kind":"IPClaim"},"userInfo":{"username":"alice","groups":["system:masters"]},
		"object":{"apiVersion":"ipam.cadastre.dev/v1alpha1","kind":"IPClaim","metadata":{"namespace":%[1]q,"name":%[2]q},"spec":{"className":"hosts"}}}}`,
		honestNamespace, h.name())
	return post(ctx, h.direct, "https://"+h.replicas[h.random.IntN(len(h.replicas))]+*h.path.Load(), review)
}

func post(ctx context.Context, httpClient *http.Client, address, body string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	response, err := httpClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return response.StatusCode, string(answer), err
}

// claimPath returns the path at which the API server has claims filled in.
func (w *world) claimPath() string {
	w.Helper()
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Name: "zz-cadastre-mutating-webhook-configuration"}, configuration))
	for _, webhook := range configuration.Webhooks {
		if webhook.Name == "create.ipclaim.ipam.cadastre.dev" && webhook.ClientConfig.Service.Path != nil {
			return *webhook.ClientConfig.Service.Path
		}
	}
	return ""
}

const (
	pathSecretName = "cadastre-webhook-path"
	// agedPath is a secret of paths that is older than the shortest time between two.
	agedPath = "abcdefghijklmnopqrstuvwxyz"
	// mostAccepted bounds how long a known path works, once it is old enough to be replaced: the
	// handover, the grace, and the delays of a slow machine.
	mostAccepted = 10*time.Second + time.Minute + 20*time.Second
	// interval is the shortest time between two replacements.
	interval = 10 * time.Minute
)

// TestLeakedPathIsReplaced has no first line: neither client certificates nor a network that keeps
// the hostile tenant from the webhooks. That tenant forges reviews in the name of the honest one by
// a path that it has learned, and cuts off as many requests as it can, which may show it the next
// path.
func TestLeakedPathIsReplaced(t *testing.T) {
	running := suite.Start(t, cluster.Options{
		Webhooks:          []string{"127.0.0.1:1"}, // none: the Secret is made before the first manager starts
		ControllerManager: true, ClusterAPICRDs: true, ManagerArgs: []string{"--orphan-grace=" + grace.String()},
	})
	running.Patience = 2 * time.Minute
	running.Created(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: pathSecretName}, Data: map[string][]byte{
		"current": []byte(agedPath), "since": []byte(time.Now().Add(-2 * interval).UTC().Format(time.RFC3339)),
	}})
	_, err := running.AddManager(t.Context())
	suite.Must(t, err)
	w := prepare(running)
	storm, seed := suite.Setting(t, "STORM", usualStorm(), time.ParseDuration), seedOf(t)
	good := newHonest(w)
	began := time.Now()
	alone := w.plainCreates(t.Context(), func() bool { return time.Since(began) >= aloneFor })

	l := w.leak(good, seed)
	ctx, stop := context.WithCancel(t.Context())
	var attacking sync.WaitGroup
	attacking.Go(func() { l.forge(ctx) })
	for _, h := range l.impatientClients {
		attacking.Go(func() { l.cutOff(ctx, h) })
	}
	began = time.Now()
	beside := w.plainCreates(t.Context(), func() bool {
		since := time.Since(began)
		return since >= storm && l.ended() || since >= mostAccepted+20*time.Second && !l.ended()
	})
	took := time.Since(began)
	stop()
	attacking.Wait()

	replaced := w.replacements()
	t.Logf("seed %d, %.0f s: the path was accepted for %.0f s after it leaked. By it %d reviews in the name of the honest tenant had a block recorded, and %d were refused",
		seed, took.Seconds(), l.accepted().Seconds(), l.recorded.Load(), l.refused.Load())
	t.Logf("%d requests were cut off, %d answers had the path of a webhook; paths were replaced %d times", l.cut.Load(), l.leaks.Load(), replaced)
	t.Logf("honest creates before: %s; beside it: %s", alone, beside)
	for _, failure := range beside.failed[:min(len(beside.failed), 3)] {
		t.Logf("not served: %s", failure)
	}
	if !l.ended() || l.accepted() > mostAccepted {
		t.Errorf("the path is accepted %s after it leaked, want %s at most", l.accepted(), mostAccepted)
	}
	if most := 1 + int(took/interval); replaced > most {
		t.Errorf("paths were replaced %d times in %s, want %d at most", replaced, took, most)
	}
	w.AwaitUnlessFailed("the honest tenant is served as before", func(ctx context.Context) (bool, error) {
		began := time.Now()
		c := w.plainCreates(ctx, func() bool { return time.Since(began) >= time.Second })
		return len(c.failed) == 0, nil
	})
	w.judgeProcesses()
}

// plainCreates makes and deletes claims of the honest tenant, one after the other.
func (w *world) plainCreates(ctx context.Context, enough func() bool) creates {
	w.Helper()
	cfg, err := w.User("alice")
	suite.Must(w, err)
	as, pace, c := w.Client(cluster.NoRetry(cfg)), flowcontrol.NewTokenBucketRateLimiter(perSecond, 1), creates{}
	for !enough() {
		suite.Must(w, pace.Wait(ctx))
		claim := build.Claim(honestNamespace, "").Generated(confidential + "-").Class("hosts").Obj()
		began := time.Now()
		err := as.Create(ctx, claim)
		c.took = append(c.took, time.Since(began))
		if err != nil {
			c.failed = append(c.failed, err.Error())
			continue
		}
		suite.Must(w, client.IgnoreNotFound(as.Delete(ctx, claim)))
	}
	return c
}

// replacements counts the secrets of paths that are not in use any more.
func (w *world) replacements() int {
	w.Helper()
	secret := &corev1.Secret{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: pathSecretName}, secret))
	return len(strings.Fields(string(secret.Data["previous"]) + " " + string(secret.Data["older"])))
}

// leak holds a path that the hostile tenant knows, and its gains by it.
type leak struct {
	since            time.Time
	first            string // the path that leaked first
	forger           *hostile
	impatientClients []*hostile

	last                          atomic.Int64 // when the first path was accepted last, after since
	isOver                        atomic.Bool  // it is not any more
	recorded, refused, cut, leaks atomic.Int64
}

func (w *world) leak(good *honest, seed uint64) *leak {
	w.Helper()
	l := &leak{since: time.Now(), first: w.claimPath(), forger: newHostile(w, good, random(seed, 0), nil)}
	for n := range 3 {
		h := newHostile(w, good, random(seed, uint64(n+1)), nil)
		h.path = l.forger.path // both use the same path
		l.impatientClients = append(l.impatientClients, h)
	}
	return l
}

func (l *leak) ended() bool { return l.isOver.Load() }

func (l *leak) accepted() time.Duration { return time.Duration(l.last.Load()) }

// forge sends reviews by the path that is known, twenty in a second.
func (l *leak) forge(ctx context.Context) {
	pace := flowcontrol.NewTokenBucketRateLimiter(20, 1)
	for pace.Wait(ctx) == nil {
		path := *l.forger.path.Load()
		code, answer, err := l.forger.forgeReview(ctx)
		var review admissionv1.AdmissionReview
		if err != nil || code != http.StatusOK || json.Unmarshal([]byte(answer), &review) != nil || review.Response == nil {
			continue
		}
		late := !review.Response.Allowed && review.Response.Result.Code == http.StatusServiceUnavailable
		switch {
		case late && path == l.first:
			l.isOver.Store(true)
		case path == l.first:
			l.last.Store(int64(time.Since(l.since)))
		}
		switch {
		case review.Response.Allowed:
			l.recorded.Add(1)
		case !late:
			l.refused.Add(1)
		}
	}
}

// cutOff sends requests that are not answered; with -short 5 in a second, as the path is
// accepted for more than a minute.
func (l *leak) cutOff(ctx context.Context, h *hostile) {
	pace := flowcontrol.NewFakeAlwaysRateLimiter()
	if testing.Short() {
		pace = flowcontrol.NewTokenBucketRateLimiter(5, 1)
	}
	for pace.Wait(ctx) == nil && ctx.Err() == nil {
		switch err := h.createImpatiently(ctx); {
		case errors.Is(err, errCutOff):
			l.cut.Add(1)
		case errors.Is(err, errPathTold):
			l.leaks.Add(1)
		}
		for len(h.claims) > mostClaims/5 {
			h.forget(ctx, 0)
		}
	}
}
