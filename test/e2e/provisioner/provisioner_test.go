package provisioner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/must"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/provisioner"
)

const (
	account = "system:serviceaccount:ranges:provisioner"
	name    = "ipam.example.com/ranges"
)

// ranges is a system that has the ranges 10.64.0.0/24 to 10.64.255.0/24.
type ranges struct {
	mu    sync.Mutex
	byKey map[string]netip.Prefix
}

func (r *ranges) Provision(_ context.Context, request provisioner.Request) (netip.Prefix, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if block, ok := r.byKey[request.Key]; ok {
		return block, nil
	}
	used := map[netip.Prefix]bool{}
	for _, block := range r.byKey {
		used[block] = true
	}
	for i := range 256 {
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 64, byte(i)}), request.PrefixLength)
		if !used[block] && (!request.Range.IsValid() || request.Range == block) {
			r.byKey[request.Key] = block
			return block, nil
		}
	}
	return netip.Prefix{}, errors.New("no range is free")
}

func (r *ranges) Release(_ context.Context, key string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byKey, key)
	return nil
}

func (r *ranges) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byKey)
}

// TestProvisionerServesDemandOfOperator runs a provisioner beside the operator, with the rights that its
// package documents and no more: claims are bound when the pools come, the pools go when they are empty,
// and blocks are handed out while it is away.
func TestProvisionerServesDemandOfOperator(t *testing.T) {
	w := suite.Start(t, cluster.Options{Managers: 1})
	w.Namespace("ranges")
	grant(w)
	system := &ranges{byKey: map[string]netip.Prefix{}}
	class := build.Class("leased").Length(26).With(func(s *v1alpha1.IPClassSpec) {
		s.Provisioner, s.Parameters = name, map[string]string{"poolPrefixLength": "24", "releaseAfter": "1s"}
	}).Obj()
	w.Created(class)
	claims := []*v1alpha1.IPClaim{}
	claimed := func(names ...string) (created []*v1alpha1.IPClaim) {
		for _, claim := range names {
			created = append(created, build.Claim("default", claim).Class("leased").Obj())
			w.Created(created[len(created)-1])
		}
		claims = append(claims, created...)
		return created
	}
	reason := func() string {
		suite.Must(t, w.Get(t.Context(), client.ObjectKeyFromObject(class), class))
		if condition := meta.FindStatusCondition(class.Status.Conditions, provisioner.ConditionProvisioned); condition != nil {
			return condition.Reason
		}
		return ""
	}

	waiting := claimed("a", "b", "c", "d", "e")
	stop := run(t, w, system)
	w.Bound(waiting...)
	w.Await("the condition of the class", func(context.Context) bool { return reason() == provisioner.ReasonProvisioned })
	w.Await("the event of a pool", func(ctx context.Context) bool {
		all := &eventsv1.EventList{}
		suite.Must(t, w.List(ctx, all))
		return slices.ContainsFunc(all.Items, func(e eventsv1.Event) bool {
			return e.Reason == provisioner.ReasonProvisioned && e.Regarding.Name == class.Name && e.Related != nil && strings.HasPrefix(e.Note, "pool leased-")
		})
	})
	if n := system.count(); n != 2 {
		t.Errorf("%d ranges serve 5 claims for a quarter of one each, want 2", n)
	}
	stop()
	for _, claim := range claimed("f", "g", "h") {
		if claim.Status.Phase != v1alpha1.ClaimBound {
			t.Errorf("without provisioner, claim %s is %s in the response to the create call, while a pool has room", claim.Name, claim.Status.Phase)
		}
	}
	last := claimed("i")[0]
	if condition := meta.FindStatusCondition(last.Status.Conditions, v1alpha1.ConditionPending); condition == nil || condition.Reason != v1alpha1.ReasonWaitingForProvisioner {
		t.Errorf("without provisioner and room, the claim has the condition %+v", condition)
	}
	run(t, w, system)
	w.Bound(last)
	for _, claim := range claims {
		w.Deleted(claim)
	}
	pools := &v1alpha1.IPPoolList{}
	w.Await("the return of all ranges", func(ctx context.Context) bool {
		suite.Must(t, w.List(ctx, pools))
		return len(pools.Items) == 0 && system.count() == 0
	})
}

// TestRefusedWriteIsTriedFewTimes takes the right to each write from the provisioner, one after the other.
func TestRefusedWriteIsTriedFewTimes(t *testing.T) {
	const watched, most = 10 * time.Second, 25 // of one kind: 8 in 1.3 s, then one in a second, and one for each event
	w := suite.Start(t, cluster.Options{Managers: 1})
	w.Namespace("ranges")
	grant(w)
	class := build.Class("leased").Length(24).With(func(s *v1alpha1.IPClassSpec) {
		s.Provisioner, s.Parameters = name, map[string]string{"poolPrefixLength": "24"}
	}).Obj()
	sent := &requests{count: map[string]int{}, refused: map[string]bool{}}
	for i, resource := range []string{"ipclasses/status", "configmaps", "ippools"} {
		allowOnly(w, resource)
		if i == 0 {
			w.Created(class)
			run(t, w, &ranges{byKey: map[string]netip.Prefix{}}, func(next http.RoundTripper) http.RoundTripper {
				sent.RoundTripper = next
				return sent
			})
		}
		claim := build.Claim("default", fmt.Sprint("claim-", i)).Class("leased").Obj()
		w.Created(claim)
		w.Await(resource+" is refused", func(context.Context) bool { return sent.hasRefused(resource) })
		sent.reset()
		select { // there is no event to wait for: the small number of requests is the result
		case <-time.After(watched):
		case <-t.Context().Done():
		}
		count := sent.reset()
		t.Logf("without the right to write %s, in %s: %v", resource, watched, count)
		for request, n := range count {
			if n > most {
				t.Errorf("without the right to write %s: %d times %s in %s, want %d at most", resource, n, request, watched, most)
			}
		}
		allowOnly(w, "")
		w.Bound(claim)
		w.Await("the condition of the class", func(ctx context.Context) bool {
			suite.Must(t, w.Get(ctx, client.ObjectKeyFromObject(class), class))
			return meta.IsStatusConditionTrue(class.Status.Conditions, provisioner.ConditionProvisioned)
		})
	}
}

// requests counts the requests by which the provisioner changes something, by method and path.
type requests struct {
	http.RoundTripper
	mu      sync.Mutex
	count   map[string]int
	refused map[string]bool
}

// RoundTrip implements http.RoundTripper.
func (r *requests) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := r.RoundTripper.RoundTrip(request)
	r.mu.Lock()
	defer r.mu.Unlock()
	if request.Method != http.MethodGet {
		r.count[request.Method+" "+request.URL.Path]++
	}
	if err == nil && answer.StatusCode == http.StatusForbidden {
		r.refused[request.URL.Path] = true
	}
	return answer, err
}

// reset begins to count again, and returns the numbers until now.
func (r *requests) reset() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := r.count
	r.count, r.refused = map[string]int{}, map[string]bool{}
	return count
}

func (r *requests) hasRefused(resource string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	kind, subresource, _ := strings.Cut(resource, "/")
	for path := range r.refused {
		if strings.Contains(path, "/"+kind) && strings.HasSuffix(path, subresource) {
			return true
		}
	}
	return false
}

// allowOnly grants the documented rights but for those to write a resource.
func allowOnly(w *suite.World, refused string) {
	w.Helper()
	without := func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		for i, rule := range rules {
			if slices.Contains(rule.Resources, refused) {
				rules[i].Verbs = slices.DeleteFunc(rule.Verbs, func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) })
			}
		}
		return slices.DeleteFunc(rules, func(rule rbacv1.PolicyRule) bool { return len(rule.Verbs) == 0 })
	}
	everywhere, inNamespace := documented(w)
	named := metav1.ObjectMeta{Namespace: "ranges", Name: "ranges-provisioner"}
	suite.Must(w, w.Update(w.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: named.Name}, Rules: without(everywhere)}))
	suite.Must(w, w.Update(w.Context(), &rbacv1.Role{ObjectMeta: named, Rules: without(inNamespace)}))
}

// run runs the provisioner until it is stopped, or the test ends. The wrappers see its requests.
func run(t *testing.T, w *suite.World, system provisioner.Provisioner, wrappers ...transport.WrapperFunc) (stop func()) {
	t.Helper()
	config := rest.CopyConfig(w.Config())
	for _, wrapper := range wrappers {
		config.Wrap(wrapper)
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: account, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := provisioner.Run(ctx, config, system, provisioner.Options{Name: name, Namespace: "ranges", Timeout: 10 * time.Second}); err != nil && ctx.Err() == nil {
			t.Errorf("the provisioner ends: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	return stop
}

// TestHubProvisionerHasDocumentedRights compares the roles in config/hub-provisioner with the documentation.
// Their rules in the namespace have names, which a name of a provisioner decides.
func TestHubProvisionerHasDocumentedRights(t *testing.T) {
	objects, err := manifests.Decode([]byte(suite.Kustomized(t, "config/hub-provisioner")))
	suite.Must(t, err)
	everywhere, inNamespace := documented(t)
	for kind, want := range map[string][]rbacv1.PolicyRule{"ClusterRole": everywhere, "Role": inNamespace} {
		i := slices.IndexFunc(objects, func(obj *unstructured.Unstructured) bool { return obj.GetKind() == kind })
		got := must.As[rbacv1.ClusterRole](t, objects[i]).Rules
		for j := range got {
			if kind == "Role" {
				got[j].ResourceNames = nil
			}
		}
		if diff := cmp.Diff(rights(want), rights(got)); diff != "" {
			t.Errorf("%s: documented (-), and in config/hub-provisioner (+):\n%s", kind, diff)
		}
	}
}

// rights returns the single rights of rules, in order and each once.
func rights(rules []rbacv1.PolicyRule) []string {
	var all []string
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			all = append(all, fmt.Sprint(rule.APIGroups, rule.Resources, rule.ResourceNames, verb))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

var rightPattern = regexp.MustCompile(`\+kubebuilder:rbac:groups=(\S*?),resources=(\S*?),verbs=([a-z;]+)(?:,resourceNames=(\S+))?`)

// documented returns the rights in the documentation of the package: everywhere, and in the namespace alone.
func documented(t testing.TB) (everywhere, inNamespace []rbacv1.PolicyRule) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(suite.ModuleRoot(t), "provisioner", "doc.go"))
	suite.Must(t, err)
	before, after, ok := strings.Cut(string(text), "and in its namespace")
	if !ok {
		t.Fatal("provisioner/doc.go does not list the rights in its namespace")
	}
	return rules(before), rules(after)
}

// grant grants the documented rights.
func grant(w *suite.World) {
	w.Helper()
	everywhere, inNamespace := documented(w)
	named := metav1.ObjectMeta{Namespace: "ranges", Name: "ranges-provisioner"}
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: account}}
	w.Created(
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: named.Name}, Rules: everywhere},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: named.Name}, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: named.Name}},
		&rbacv1.Role{ObjectMeta: named, Rules: inNamespace},
		&rbacv1.RoleBinding{ObjectMeta: named, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: named.Name}},
	)
}

func rules(text string) []rbacv1.PolicyRule {
	var all []rbacv1.PolicyRule
	for _, m := range rightPattern.FindAllStringSubmatch(text, -1) {
		split := func(s string) []string {
			return slices.DeleteFunc(strings.Split(s, ";"), func(s string) bool { return s == "" })
		}
		rule := rbacv1.PolicyRule{APIGroups: []string{strings.Trim(m[1], `"`)}, Resources: split(m[2]), Verbs: split(m[3]), ResourceNames: split(m[4])}
		all = append(all, rule)
	}
	return all
}
