package provisioner

import (
	"context"
	"errors"
	"fmt"
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

// run runs the provisioner until it is stopped, or the test ends.
func run(t *testing.T, w *suite.World, system provisioner.Provisioner) (stop func()) {
	t.Helper()
	config := rest.CopyConfig(w.Config())
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
