package security

import (
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

// rightsOfPeople has the roles for people, each right as "verb resource", and the built-in roles to
// which they are added. A right that is added here is a decision.
var rightsOfPeople = map[string]struct {
	rights      string
	aggregateTo string
}{
	"ipam-admin": {rights: `
		create,delete,deletecollection,get,list,patch,update,watch ipclaims
		create,delete,deletecollection,get,list,patch,update,watch ipclasses
		create,delete,deletecollection,get,list,patch,update,watch ippools
		create,delete,deletecollection,get,list,patch,update,watch localippools
		delete,get,list,watch ipallocations
		provision ipclasses
		use ippools`},
	"ipam-pool-admin": {rights: `
		create,delete,get,list,patch,update,watch ipclasses
		create,delete,get,list,patch,update,watch ippools
		get,list,watch ipallocations
		get,list,watch ipclaims
		get,list,watch localippools
		provision ipclasses`},
	"ipam-user": {aggregateTo: "admin edit", rights: `
		create,delete,deletecollection,get,list,patch,update,watch ipclaims
		create,delete,deletecollection,get,list,patch,update,watch localippools
		get,list,watch ipallocations`},
	"ipam-class-viewer": {rights: `
		get,list,watch ipclasses`},
	"ipam-viewer": {aggregateTo: "view", rights: `
		get,list,watch ipallocations
		get,list,watch ipclaims
		get,list,watch localippools`},
}

func TestUserRolesMatchListedRights(t *testing.T) {
	found := map[string]bool{}
	for _, obj := range rendered(t, "config/default") {
		if obj.GetKind() != "ClusterRole" || strings.HasPrefix(obj.GetName(), "cadastre-") {
			continue // the rights of the operator, or to its metrics
		}
		found[obj.GetName()] = true
		role, want := must.As[rbacv1.ClusterRole](t, obj), rightsOfPeople[obj.GetName()]
		if diff := gocmp.Diff(lines(want.rights), rightsIn(t, role)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", role.Name, diff)
		}
		var aggregated []string
		for label, value := range role.Labels {
			if to, ok := strings.CutPrefix(label, "rbac.authorization.k8s.io/aggregate-to-"); ok && value == "true" {
				aggregated = append(aggregated, to)
			}
		}
		slices.Sort(aggregated)
		if got := strings.Join(aggregated, " "); got != want.aggregateTo || role.AggregationRule != nil {
			t.Errorf("%s is added to %q, want %q (and has the rule %v)", role.Name, got, want.aggregateTo, role.AggregationRule)
		}
	}
	for name := range rightsOfPeople {
		if !found[name] {
			t.Errorf("there is no role %s", name)
		}
	}
}

// rightsIn returns the rights of a role, each rule as its verbs and one resource.
func rightsIn(t *testing.T, role *rbacv1.ClusterRole) []string {
	t.Helper()
	var all []string
	for _, rule := range role.Rules {
		if !slices.Equal(rule.APIGroups, []string{"ipam.cadastre.dev"}) || len(rule.ResourceNames)+len(rule.NonResourceURLs) > 0 {
			t.Errorf("%s has a rule that is not of this API alone: %v", role.Name, rule)
		}
		verbs := slices.Sorted(slices.Values(rule.Verbs))
		for _, resource := range rule.Resources {
			all = append(all, strings.Join(verbs, ",")+" "+resource)
		}
	}
	slices.Sort(all)
	return all
}

func lines(text string) []string {
	all := strings.Split(strings.ReplaceAll(strings.TrimSpace(text), "\t", ""), "\n")
	slices.Sort(all)
	return all
}

// TestChecksByWebhookAloneFailClosed checks the failure policies: objects that a webhook
// alone can refuse must not pass while no replica runs; for those that can still be edited and
// deleted a failure is ignored.
func TestChecksByWebhookAloneFailClosed(t *testing.T) {
	want := map[string]string{
		"create.ipclaim.ipam.cadastre.dev": "Ignore", "retry.ipclaim.ipam.cadastre.dev": "Fail", "create.ippool.ipam.cadastre.dev": "Fail", "create.localippool.ipam.cadastre.dev": "Fail",
		"ipclass.ipam.cadastre.dev": "Fail", "default.ipclass.ipam.cadastre.dev": "Fail", "update.ipclass.ipam.cadastre.dev": "Ignore",
		"grant.ipaddressclaim.ipam.cadastre.dev": "Fail", "create.ipaddressclaim.ipam.cadastre.dev": "Ignore", "keep.ipaddressclaim.ipam.cadastre.dev": "Ignore",
		"create.ipaddress.ipam.cadastre.dev": "Ignore", "mutating update.ipclaim.ipam.cadastre.dev": "Ignore",
		"keep.ippool.ipam.cadastre.dev": "Ignore", "keep.localippool.ipam.cadastre.dev": "Ignore",
		"update.ipclaim.ipam.cadastre.dev": "Fail", "update.ippool.ipam.cadastre.dev": "Fail", "update.localippool.ipam.cadastre.dev": "Fail",
		"create.cluster.ipam.cadastre.dev": "Fail", "create-by-namespace.cluster.ipam.cadastre.dev": "Fail", "update.cluster.ipam.cadastre.dev": "Ignore",
		"delete.ippool.ipam.cadastre.dev": "Ignore", "delete.localippool.ipam.cadastre.dev": "Ignore",
		"delete.ipclass.ipam.cadastre.dev": "Ignore", "delete.ipallocation.ipam.cadastre.dev": "Fail",
		"inclusterippool.ipam.cadastre.dev": "Ignore", "globalinclusterippool.ipam.cadastre.dev": "Ignore",
	}
	got := map[string]string{}
	note := func(prefix, name string, policy *admissionregistrationv1.FailurePolicyType) {
		if _, twice := want[prefix+name]; twice {
			name = prefix + name
		}
		got[name] = string(*policy)
	}
	for _, obj := range rendered(t, "config/default") {
		switch obj.GetKind() {
		case "MutatingWebhookConfiguration":
			hooks := must.As[admissionregistrationv1.MutatingWebhookConfiguration](t, obj).Webhooks
			for _, hook := range hooks {
				note("mutating ", hook.Name, hook.FailurePolicy)
			}
			if obj.GetName() == manifests.ClusterWebhooks {
				continue
			}
			named := func(name string) int {
				return slices.IndexFunc(hooks, func(h admissionregistrationv1.MutatingWebhook) bool { return h.Name == name })
			}
			if first, again := named("create.ipclaim.ipam.cadastre.dev"), named("retry.ipclaim.ipam.cadastre.dev"); first < 0 || again < first {
				t.Errorf("create.ipclaim is webhook %d and retry.ipclaim webhook %d: it is to come after", first, again)
			}
		case "ValidatingWebhookConfiguration":
			for _, hook := range must.As[admissionregistrationv1.ValidatingWebhookConfiguration](t, obj).Webhooks {
				note("validating ", hook.Name, hook.FailurePolicy)
			}
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
