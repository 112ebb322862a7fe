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
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

const (
	// watched is the time in which requests are counted.
	watched = 10 * time.Second
	// mostOfAKind bounds the requests of one verb and resource for one object in that time: eight in
	// the first 1.3 s, after 5 ms and twice as long each time, then one in a second. The rest is for
	// events, which bring a pass forward.
	mostOfAKind = 20
	// mostWrites bounds the requests that change something in that time. Most are made if a claim
	// waits for the block of another one: that record is fenced and deleted, the next one created
	// and bound, and after each of them the pool's status may be written.
	mostWrites = 8
	// servedWithin bounds the time from the end of the cause to the success: a second until the next try, and
	// about four requests, which take a second each on a machine that is busy. Delays that double without bound
	// would make it ten.
	servedWithin = 8 * time.Second
	// grace is the --orphan-grace of the operator: some writes are made only after it.
	grace = 15 * time.Second
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
	w := suite.Start(t, cluster.Options{Managers: 1, ClusterAPICRDs: true, Audit: true, OrphanGrace: grace})
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
				if !isConfiguration(write) { // its cause begins when both Secrets are written
					t.Parallel()
				}
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
	// before is the number of requests of the operator before the write was refused.
	before int
}

func (s *scene) run() {
	s.Namespace(s.name)
	preparing <- struct{}{}
	s.write.prepare(s)
	<-preparing
	end := s.refuse.begin(s)
	s.before = len(s.requests())
	s.write.begin(s)
	select { // there is no event to wait for: the small number of requests is the result
	case <-time.After(watched):
	case <-s.Context().Done():
	}
	s.expectFewRequests(s.requests()[s.before:])
	if s.write.says != nil && s.refuse.says != nil {
		if says := s.write.says(s); !strings.Contains(says, s.refuse.says(s)) {
			s.Errorf("it says %q, want that it names %q", says, s.refuse.says(s))
		}
	}
	end()
	ended := time.Now()
	s.Await("it is served", func(context.Context) bool { return s.write.served(s) })
	if took := time.Since(ended); took > servedWithin+s.write.waits {
		s.Errorf("it was served %s after the cause had ended, want %s at most", took, servedWithin+s.write.waits)
		for _, a := range s.requests()[s.before:] {
			if after := a.RequestReceivedTimestamp.Sub(ended); after > -watched/4 {
				s.Logf("%s: %s %s/%s: %d", after.Round(time.Millisecond), a.Verb, a.ObjectRef.Resource, a.ObjectRef.Subresource, a.ResponseStatus.Code)
			}
		}
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
		return a.ObjectRef.Namespace != s.name && !slices.Contains(strings.Split(a.ObjectRef.Name, "."), s.name) && (s.write.object == "" || a.ObjectRef.Name != s.write.object || a.ObjectRef.Resource != s.write.resource)
	})
}

// writer returns the controller that made a request, empty if it does not say so.
func writer(a cluster.Audited) string {
	uri, err := url.Parse(a.RequestURI)
	if err != nil {
		return err.Error()
	}
	return uri.Query().Get("fieldManager")
}

// awaitRefusal waits until the write is refused.
func (s *scene) awaitRefusal() {
	s.Await("it is refused", func(context.Context) bool {
		return slices.ContainsFunc(s.requests()[s.before:], s.isRefused)
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
	kinds, times, changes := map[string]int{}, map[string][]time.Time{}, 0
	for _, a := range requests {
		kind := strings.TrimRight(a.Verb+" "+a.ObjectRef.Resource+"/"+a.ObjectRef.Subresource+" "+writer(a), "/ ")
		since := a.RequestReceivedTimestamp.Add(-watched)
		times[kind] = append(slices.DeleteFunc(times[kind], since.After), a.RequestReceivedTimestamp)
		kinds[kind] = max(kinds[kind], len(times[kind]))
		if a.Verb != "get" && a.Verb != "list" && a.ResponseStatus.Code < 300 {
			changes++
		}
	}
	s.Logf("requests in %s: %v; %d changed something", watched, kinds, changes)
	most := mostOfAKind * max(s.write.writers, 1)
	for kind, n := range kinds {
		if n > most {
			s.Errorf("%d times %s in %s, want %d at most", n, kind, watched, most)
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
	// begin refuses the write of a scene from now on, and returns a function that ends that. Both wait until the
	// API server does so.
	begin func(*scene) (end func())
	// says returns the text that a condition or an event names.
	says func(*scene) string
}

func refusals(conflicts *httptest.Server) []refusal {
	notSecret := func(w write) bool { return w.object == "" }
	webhook := func(address string, authority []byte) func(*scene) func() {
		return func(s *scene) func() { return s.refusedBy(s.webhook(address, authority)) }
	}
	return []refusal{
		{
			"a quota", func(w write) bool { return w.verb == "create" && !w.clusterScoped },
			(*scene).quota, func(s *scene) string { return "exceeded quota: " + s.name },
		},
		{
			"a policy", func(w write) bool { return !isConfiguration(w) },
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
		{"its role", isConfiguration, (*scene).role, nil},
	}
}

// isConfiguration reports whether a write is one to a configuration of webhooks, which no policy, webhook or quota
// judges.
func isConfiguration(w write) bool { return w.object == configuration }

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
	return s.ends(objects...)
}

// ends waits until the objects refuse, and returns a function that deletes them.
func (s *scene) ends(objects ...client.Object) func() {
	s.Cleanup(func() { _ = client.IgnoreNotFound(s.Delete(context.Background(), objects[0])) })
	s.AwaitCanary(true)
	return func() {
		s.Deleted(objects...)
		s.AwaitCanary(false)
	}
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
	s.Created(quota)
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none} // as the quota controller does
	suite.Must(s, s.Status().Update(s.Context(), quota))
	return s.ends(quota)
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

// role takes the right to the write from the operator.
func (s *scene) role() func() {
	operator := s.AsOperator()
	change := func(from, to string) {
		suite.Must(s, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			role := &rbacv1.ClusterRole{}
			suite.Must(s, s.Get(s.Context(), client.ObjectKey{Name: "cadastre-manager"}, role))
			for i, rule := range role.Rules {
				if at := slices.Index(rule.Verbs, from); at >= 0 && slices.Contains(rule.Resources, s.write.resource) {
					role.Rules[i].Verbs[at] = to
				}
			}
			return s.Update(s.Context(), role)
		}))
		s.Await("the operator's role says "+to, func(ctx context.Context) bool {
			object := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: s.write.object}}
			return apierrors.IsForbidden(operator.Patch(ctx, object, build.Merge("{}"), client.DryRunAll)) == (to != s.write.verb)
		})
	}
	change(s.write.verb, "none")
	return func() { change("none", s.write.verb) }
}

func (s *scene) webhook(address string, authority []byte) client.Object {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: s.name + ".example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &address, CABundle: authority},
			Rules: s.rules(), MatchConditions: s.conditions(), TimeoutSeconds: new(int32(1)),
			FailurePolicy: new(admissionregistrationv1.Fail), SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}
