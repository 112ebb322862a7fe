// Package loops makes the API server refuse each write of each controller, in each way in which it
// can, and counts the requests of the operator in that time: a pass that fails must not cause its
// own next one.
package loops

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

const (
	// watched is the time in which requests are counted.
	watched = 10 * time.Second
	// mostOfAKind bounds the requests of one verb and resource for one object in that time: after 5
	// ms, twice as long each time, and then once a second.
	mostOfAKind = 25
	// mostWrites bounds the requests that change something in that time. Most are made if a claim
	// waits for the block of another one: that record is fenced and deleted, the next one created
	// and bound, and after each of them the pool's status may be written.
	mostWrites = 8
	// servedWithin bounds the time from the end of the cause to the success: until the API server
	// notices that, a second until the next try, and more on a machine that is busy.
	servedWithin = 6 * time.Second
)

// TestMain runs all rows at once: they do little but wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "100"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestFailedPassDoesNotTriggerNextPass runs all rows at once, each in a separate namespace with
// separate objects.
func TestFailedPassDoesNotTriggerNextPass(t *testing.T) {
	w := suite.Start(t, cluster.Options{Managers: 1, ClusterAPICRDs: true, Audit: true})
	w.Patience = 2 * time.Minute
	answers := conflicts(t)
	n := 0
	for _, write := range writes() {
		for _, refuse := range refusals(answers) {
			if !refuse.refuses(write) {
				continue
			}
			n++
			s := &scene{World: w, write: write, refuse: refuse, name: fmt.Sprintf("row%d", n)}
			t.Run(write.does+", refused by "+refuse.name, func(t *testing.T) {
				t.Parallel()
				s.World = w.For(t)
				s.run()
			})
		}
	}
}

// preparing bounds how many rows create objects at once, so that no create takes too long.
var preparing = make(chan struct{}, 4)

// scene holds one row: a write that is refused in one way.
type scene struct {
	*suite.World
	write  write
	refuse refusal
	// name is the name of the namespace, and of all objects.
	name string
}

func (s *scene) run() {
	s.Namespace(s.name)
	preparing <- struct{}{}
	s.write.prepare(s)
	<-preparing
	end := s.refuse.begin(s)
	s.AwaitCanary(true)
	before := len(s.requests())
	s.write.begin(s)
	select { // there is no event to wait for: the small number of requests is the result
	case <-time.After(watched):
	case <-s.Context().Done():
	}
	s.expectFewRequests(s.requests()[before:])
	if s.write.says != nil && s.refuse.says != nil {
		if says := s.write.says(s); !strings.Contains(says, s.refuse.says(s)) {
			s.Errorf("its condition says %q, want that it names %q", says, s.refuse.says(s))
		}
	}
	end()
	s.AwaitCanary(false)
	ended := time.Now()
	s.Await("it is served", func(context.Context) bool { return s.write.served(s) })
	if took := time.Since(ended); took > servedWithin {
		s.Errorf("it was served %s after the cause had ended, want %s at most", took, servedWithin)
	} else {
		s.Logf("it was served %s after the cause had ended", took.Round(time.Millisecond))
	}
}

// Created creates objects, again and again if the machine is too busy.
func (s *scene) Created(objects ...client.Object) {
	s.Helper()
	for _, obj := range objects {
		s.Await(obj.GetName()+" is created", func(ctx context.Context) bool {
			return client.IgnoreAlreadyExists(s.Create(ctx, obj)) == nil
		})
	}
}

// requests returns those of the operator for the objects of the row.
func (s *scene) requests() []cluster.Audited {
	all, err := s.Audit()
	suite.Must(s, err)
	return slices.DeleteFunc(all, func(a cluster.Audited) bool {
		if a.Verb == "watch" || a.ObjectRef.Resource == "events" {
			return true
		}
		return a.ObjectRef.Namespace != s.name && !slices.Contains(strings.Split(a.ObjectRef.Name, "."), s.name) && (s.write.object == "" || a.ObjectRef.Name != s.write.object)
	})
}

func (s *scene) isRefused(a cluster.Audited) bool {
	return a.Verb == s.write.verb && a.ObjectRef.Resource == s.write.resource && a.ObjectRef.Subresource == s.write.subresource && a.ResponseStatus.Code >= 400
}

// expectFewRequests expects that the write was refused, by few requests, and fewer that change
// anything.
func (s *scene) expectFewRequests(requests []cluster.Audited) {
	if !slices.ContainsFunc(requests, s.isRefused) {
		s.Fatalf("nothing was refused")
	}
	kinds, changes := map[string]int{}, 0
	for _, a := range requests {
		kinds[strings.TrimSuffix(a.Verb+" "+a.ObjectRef.Resource+"/"+a.ObjectRef.Subresource, "/")]++
		if a.Verb != "get" && a.Verb != "list" && a.ResponseStatus.Code < 300 {
			changes++
		}
	}
	s.Logf("requests in %s: %v; %d changed something", watched, kinds, changes)
	for kind, n := range kinds {
		if n > mostOfAKind {
			s.Errorf("%d times %s in %s, want %d at most", n, kind, watched, mostOfAKind)
		}
	}
	if changes > mostWrites {
		s.Errorf("%d requests changed something in %s, want %d at most: %v", changes, watched, mostWrites, kinds)
	}
}

// refusal holds a way in which an API server refuses a write.
type refusal struct {
	name    string
	refuses func(write) bool
	// begin begins to refuse the write of a scene, and returns a function that ends that.
	begin func(*scene) (end func())
	// says returns the text that a condition names.
	says func(*scene) string
}

func refusals(conflicts *httptest.Server) []refusal {
	notSecret := func(w write) bool { return w.resource != "secrets" }
	webhook := func(url string, authority []byte) func(*scene) func() {
		return func(s *scene) func() { return s.refusedBy(s.webhook(url, authority)) }
	}
	return []refusal{
		{
			"a quota", func(w write) bool { return w.verb == "create" && !w.clusterScoped },
			(*scene).quota, func(s *scene) string { return "exceeded quota: " + s.name },
		},
		{
			"a policy", func(write) bool { return true },
			(*scene).policy, func(s *scene) string { return "ValidatingAdmissionPolicy '" + s.name + "'" },
		},
		{
			"a webhook that does not answer", notSecret,
			func(s *scene) func() { return webhook(silent(s), nil)(s) }, func(s *scene) string { return `failed calling webhook "` + s.name + `.example.com"` },
		},
		{
			"a conflict", notSecret,
			webhook(conflicts.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: conflicts.Certificate().Raw})), nil,
		},
	}
}

// conflicts starts a webhook that refuses all with 409, as the API server does if a newer version
// is stored.
func conflicts(t *testing.T) *httptest.Server {
	server := httptest.NewTLSServer(http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(to, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{
			UID:    review.Request.UID,
			Result: &metav1.Status{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: "there is a newer version"},
		}
		_ = json.NewEncoder(to).Encode(review)
	}))
	t.Cleanup(server.Close)
	return server
}

// silent returns the address of a server that takes connections and never answers.
func silent(s *scene) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	suite.Must(s, err)
	s.Cleanup(func() { _ = listener.Close() })
	return "https://" + listener.Addr().String()
}

const canary = "canary"

// rules select the write, and the canary.
func (s *scene) rules() []admissionregistrationv1.RuleWithOperations {
	operation := map[string]admissionregistrationv1.OperationType{
		"create": admissionregistrationv1.Create, "patch": admissionregistrationv1.Update, "delete": admissionregistrationv1.Delete,
	}[s.write.verb]
	resource := s.write.resource
	if s.write.subresource != "" {
		resource += "/" + s.write.subresource
	}
	return []admissionregistrationv1.RuleWithOperations{
		{
			Operations: []admissionregistrationv1.OperationType{operation},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{s.write.group}, APIVersions: []string{"*"}, Resources: []string{resource}},
		},
		{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"configmaps"}},
		},
	}
}

// conditions returns the conditions that select the objects that the operator writes for the scene,
// and the canary.
func (s *scene) conditions() []admissionregistrationv1.MatchCondition {
	named := "has(request.name) && request.name.split('.').exists(part, part == '" + s.name + "')"
	if s.write.object != "" {
		named = "has(request.name) && request.name == '" + s.write.object + "'"
	}
	within := "has(request.namespace) && request.namespace == '" + s.name + "'"
	return []admissionregistrationv1.MatchCondition{{
		Name: "scene",
		Expression: fmt.Sprintf("request.resource.resource == 'configmaps' ? %s : request.userInfo.username == 'system:serviceaccount:%s:%s' && (%s || %s)",
			within, cluster.Namespace, cluster.ServiceAccount, within, named),
	}}
}

// refusedBy creates objects that refuse, and returns a function that deletes them.
func (s *scene) refusedBy(objects ...client.Object) func() {
	s.Created(objects...)
	end := func() { _ = client.IgnoreNotFound(s.Delete(context.Background(), objects[0])) }
	s.Cleanup(end)
	return func() { s.Deleted(objects...) }
}

// AwaitCanary waits until the API server refuses the writes of the scene, or does not any more.
func (s *scene) AwaitCanary(refused bool) {
	s.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: canary}}
	s.Await(fmt.Sprintf("the canary is refused: %v", refused), func(ctx context.Context) bool {
		return (s.Create(ctx, config.DeepCopy(), client.DryRunAll) != nil) == refused
	})
}

func (s *scene) quota() func() {
	none := corev1.ResourceList{
		corev1.ResourceName("count/" + s.write.resource + "." + s.write.group): resource.MustParse("0"),
		"count/configmaps": resource.MustParse("0"),
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: s.name}, Spec: corev1.ResourceQuotaSpec{Hard: none}}
	end := s.refusedBy(quota)
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none} // as the quota controller does
	suite.Must(s, s.Status().Update(s.Context(), quota))
	return end
}

func (s *scene) policy() func() {
	var rules []admissionregistrationv1.NamedRuleWithOperations
	for _, rule := range s.rules() {
		rules = append(rules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: rule})
	}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: rules},
			MatchConditions:  s.conditions(),
			Validations:      []admissionregistrationv1.Validation{{Expression: "false", Message: "not now"}},
		},
	}
	return s.refusedBy(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: s.name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, policy)
}

func (s *scene) webhook(url string, authority []byte) client.Object {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: s.name + ".example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: authority},
			Rules: s.rules(), MatchConditions: s.conditions(), TimeoutSeconds: new(int32(1)),
			FailurePolicy: new(admissionregistrationv1.Fail), SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}
