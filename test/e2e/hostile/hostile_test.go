package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

const (
	senders = 8
	// slowest bounds the time of an answer: the timeout that the API server gives admission, and
	// some.
	slowest = 10 * time.Second
)

func TestEveryMutationIsRejectedOrReconciled(t *testing.T) {
	w := suite.Start(t, cluster.Options{Managers: 2, ManagerArgs: []string{"--orphan-grace=2s", "--unclaimed-limit=100000"}})
	prepare(w)
	processes := w.Processes()
	seed, count := suite.Seed(t, "SEED", 1), suite.Setting(t, "MUTATIONS", suite.Sized(10_000, 2_000), strconv.Atoi)
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)

	began := time.Now()
	codes, all := map[int]int{}, make([]*sender, senders)
	var sending sync.WaitGroup
	for n := range all {
		transport, err := rest.TransportFor(w.Config())
		suite.Must(t, err)
		all[n] = &sender{
			t: t, http: &http.Client{Transport: transport, Timeout: slowest}, host: strings.TrimSuffix(w.Config().Host, "/"),
			random: rand.New(rand.NewPCG(seed, uint64(n))), codes: map[int]int{},
		}
		sending.Go(func() {
			for i := range count / senders {
				all[n].send(fmt.Sprintf("seed %d, sender %d, mutation %d", seed, n, i))
			}
		})
	}
	sending.Wait()
	for _, s := range all {
		for code, n := range s.codes {
			codes[code] += n
		}
	}
	t.Logf("seed %d: %d mutations in %.1f s, by status code: %v", seed, count/senders*senders, time.Since(began).Seconds(), codes)
	reconciled(t, w)
	w.Unharmed(processes)
	suite.Must(t, w.Create(t.Context(), build.Claim("default", "afterwards").Pool("base").Length(32).Obj()))
}

// prepare makes the objects that valid objects refer to.
func prepare(w *suite.World) {
	w.Helper()
	suite.Must(w, w.InstallClusterAPICRDs(w.Context()))
	w.Created(build.Class("hosts").Length(32).Obj())
	w.Pools(build.Pool("base").CIDR("10.1.0.0/16").Classes("hosts").Label("zone", "a").Obj())
	w.Created(build.Pool("local").CIDR("10.2.0.0/16").In("default"))
	claim := build.AddressClaim("default", "first").From(v1alpha1.GroupVersion.Group, string(v1alpha1.PoolKindLocalIPPool), "local").Obj()
	w.Created(claim)
	w.Served(claim)
}

// TestDryRunWithTooManyLabelsIsRejected expects an answer that is short, and without a
// path of the webhooks in it. An edit of an object as large is served.
func TestDryRunWithTooManyLabelsIsRejected(t *testing.T) {
	w := suite.Start(t, cluster.Options{Managers: 1})
	w.Created(build.Class("hosts").Length(32).Obj())
	w.Pools(build.Pool("base").CIDR("10.1.0.0/16").Classes("hosts").Obj())
	claim := build.Claim("default", "many").Class("hosts").Obj()
	claim.Labels = map[string]string{}
	for n := range 20_000 {
		claim.Labels[fmt.Sprint("-", n)] = "/"
	}
	began := time.Now()
	err := w.Create(t.Context(), claim, client.DryRunAll)
	if took := time.Since(began); !apierrors.IsInvalid(err) || took > slowest/2 {
		t.Fatalf("it is answered after %v: %v", took, err)
	}
	if text := err.Error(); len(text) > 1<<10 || !strings.Contains(text, "metadata.labels: Too many: 20000") || strings.Contains(text, "/mutate-") {
		t.Errorf("it is answered with %d bytes: %.2000s", len(text), text)
	}

	small := build.Claim("default", "small").Class("hosts").Obj()
	suite.Must(t, w.Create(t.Context(), small))
	edited := small.DeepCopy()
	edited.Labels = map[string]string{}
	for n := range 5_000 {
		edited.Labels[fmt.Sprint("label-", n)] = "x"
	}
	suite.Must(t, w.Patch(t.Context(), edited, client.MergeFrom(small))) // no webhook is asked
	before := edited.DeepCopy()
	edited.Spec.ReclaimPolicy = "Retain"
	if err := w.Patch(t.Context(), edited, client.MergeFrom(before)); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.reclaimPolicy") {
		t.Errorf("an edit of one with 5,000 labels is answered: %v", err)
	}
	suite.Must(t, w.Delete(t.Context(), edited))
}

// sender sends mutations of valid objects to the API server, one after another.
type sender struct {
	t      *testing.T
	http   *http.Client
	host   string
	random *rand.Rand
	codes  map[int]int
	stored []string // paths of the created objects
}

// send creates an object, or changes one that was created.
func (s *sender) send(which string) {
	kinds := valid()
	plural := slices.Sorted(maps.Keys(kinds))[s.random.IntN(len(kinds))]
	object := mutated(kinds[plural][s.random.IntN(len(kinds[plural]))], s.random)
	group := v1alpha1.GroupVersion.String()
	if plural == addressClaims || plural == addresses {
		group = ipamv1.GroupVersion.String()
	}
	if _, ok := object["apiVersion"]; !ok {
		object["apiVersion"] = group
	}
	path := "/apis/" + group + "/"
	if plural != "ippools" && plural != "ipclasses" {
		path += "namespaces/default/"
	}
	method, contentType := http.MethodPost, "application/json"
	path += plural
	if len(s.stored) > 0 && s.random.IntN(4) == 0 {
		method, contentType, path = http.MethodPatch, "application/merge-patch+json", s.stored[s.random.IntN(len(s.stored))]
		object = map[string]any{"spec": object["spec"]}
	}
	body, err := json.Marshal(object)
	suite.Must(s.t, err)
	code, answer := s.do(which, method, path+"?fieldValidation="+[]string{"Strict", "Ignore"}[s.random.IntN(2)], contentType, body)
	s.codes[code]++
	if code == http.StatusCreated {
		s.remember(path, answer)
	}
	if reason := wrong(code, answer); reason != "" {
		s.t.Errorf("%s: %s: %s %s %.2000s: %d %.1500s", which, reason, method, path, body, code, answer)
	}
}

func (s *sender) do(which, method, path, contentType string, body []byte) (int, []byte) {
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.host+path, bytes.NewReader(body))
	suite.Must(s.t, err)
	req.Header.Set("Content-Type", contentType)
	response, err := s.http.Do(req)
	if err != nil {
		s.t.Errorf("%s: no answer: %v: %.2000s", which, err, body)
		return 0, nil
	}
	answer, err := io.ReadAll(response.Body)
	suite.Must(s.t, errors.Join(err, response.Body.Close()))
	return response.StatusCode, answer
}

func (s *sender) remember(path string, answer []byte) {
	created := &metav1.PartialObjectMetadata{}
	if json.Unmarshal(answer, created) == nil {
		s.stored = append(s.stored, path+"/"+created.Name)
	}
}

// field matches a field in a message, by its path or the name that metadata and types have for it;
// or the answer of the API server to an object that it cannot read at all.
var field = regexp.MustCompile(`(?i)\b(spec|metadata|kind|apiVersion|name|generateName|namespace|labels?|annotations?|finalizers?|ownerReferences|field)\b|cannot be handled as|IPAllocations are made by the operator`)

// wrong returns the fault of an answer, if there is any.
func wrong(code int, answer []byte) string {
	switch {
	case code >= 200 && code < 300:
		return ""
	case code == 0:
		return "" // already reported
	case code < 400 || code >= 500:
		return "no 4xx"
	}
	status := metav1.Status{}
	if err := json.Unmarshal(answer, &status); err != nil {
		return "no Status"
	}
	caused := status.Details != nil && slices.ContainsFunc(status.Details.Causes, func(c metav1.StatusCause) bool { return c.Field != "" })
	switch {
	case caused, code != http.StatusUnprocessableEntity && field.MatchString(status.Message):
		return ""
	case strings.Contains(status.Message, "ValidatingAdmissionPolicy") && field.MatchString(status.Message): // has messages alone
		return ""
	}
	return "names no field"
}

// reconciled waits until the status of every stored object is about its present spec.
func reconciled(t *testing.T, admin client.Client) {
	t.Helper()
	var behind []string
	stored := map[string]int{}
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, 60*time.Second, true, func(ctx context.Context) (bool, error) {
		var found []string
		for _, kind := range reconciledKinds() {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
			if err := admin.List(ctx, list); err != nil {
				return false, err
			}
			stored[kind.Kind] = len(list.Items)
			for _, obj := range list.Items {
				if isBehind(obj) {
					found = append(found, kind.Kind+" "+obj.GetName())
				}
			}
		}
		behind = found
		return len(behind) == 0, nil
	})
	t.Logf("stored: %v", stored)
	if err != nil {
		t.Errorf("%d objects are not reconciled (%v): %s", len(behind), err, strings.Join(behind[:min(20, len(behind))], ", "))
	}
}

func reconciledKinds() []schema.GroupVersionKind {
	kinds := []schema.GroupVersionKind{ipamv1.GroupVersion.WithKind("IPAddressClaim")}
	for _, kind := range []string{"IPPool", "LocalIPPool", "IPClass", "IPClaim"} {
		kinds = append(kinds, v1alpha1.GroupVersion.WithKind(kind))
	}
	return kinds
}

// isBehind reports whether the status of an object is not about its present spec. That of an
// IPAddressClaim has the generation in its condition; one that names neither a pool nor a class of
// ours is not our concern. An IPClaim has its status from the beginning, and no generation.
func isBehind(obj unstructured.Unstructured) bool {
	switch obj.GetKind() {
	case "IPAddressClaim":
	case "IPClaim":
		conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
		phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
		return phase == "" || len(conditions) != 2
	default:
		seen, _, _ := unstructured.NestedInt64(obj.Object, "status", "observedGeneration")
		return seen != obj.GetGeneration()
	}
	claim := &ipamv1.IPAddressClaim{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, claim); err != nil {
		return true
	}
	if ref := claim.Spec.PoolRef; ref.APIGroup != v1alpha1.GroupVersion.Group || !slices.Contains([]string{"IPPool", "LocalIPPool", "IPClass"}, ref.Kind) {
		return false
	}
	ready := meta.FindStatusCondition(claim.Status.Conditions, ipamv1.IPAddressClaimReadyCondition)
	return ready == nil || ready.ObservedGeneration != claim.Generation
}
