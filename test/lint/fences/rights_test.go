package fences

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// TestUserRolesMatchIntendedRights compares the roles for people with the intended rights: a
// change of one is made here, too.
func TestUserRolesMatchIntendedRights(t *testing.T) {
	const all, reads = "create,delete,deletecollection,get,list,patch,update,watch", "get,list,watch"
	want := map[string][]string{
		"ipam-admin": {
			all + " ipclaims,localippools,ippools,ipclasses", "use ippools", "delete," + reads + " ipallocations",
		},
		"ipam-pool-admin": {
			"create,delete,get,list,patch,update,watch ippools,ipclasses", reads + " ipclaims,localippools,ipallocations",
		},
		"ipam-user":         {all + " ipclaims,localippools", reads + " ipallocations", "aggregated to admin", "aggregated to edit"},
		"ipam-class-viewer": {reads + " ipclasses"},
		"ipam-viewer":       {reads + " ipclaims,localippools,ipallocations", "aggregated to view"},
	}
	got := map[string][]string{}
	for _, role := range read[rbacv1.ClusterRole](t, "../../../config/rbac/users/roles.yaml") {
		for _, rule := range role.Rules {
			if !slices.Equal(rule.APIGroups, []string{"ipam.cadastre.dev"}) || len(rule.ResourceNames)+len(rule.NonResourceURLs) > 0 {
				t.Errorf("%s: the rule %v is of something else", role.Name, rule)
			}
			got[role.Name] = append(got[role.Name], strings.Join(rule.Verbs, ",")+" "+strings.Join(rule.Resources, ","))
		}
		for label := range role.Labels {
			to, ok := strings.CutPrefix(label, "rbac.authorization.k8s.io/aggregate-to-")
			if !ok {
				t.Errorf("%s has the label %s", role.Name, label)
			}
			got[role.Name] = append(got[role.Name], "aggregated to "+to)
		}
	}
	sort := cmp.Transformer("sorted", func(lines []string) []string { return slices.Sorted(slices.Values(lines)) })
	if diff := cmp.Diff(want, got, sort); diff != "" {
		t.Errorf("the roles are not those:\n%s", diff)
	}
}

// TestPoliciesExemptOnlyOperator compares the resources of the policies, and the users
// to which they do not apply.
func TestPoliciesExemptOnlyOperator(t *testing.T) {
	const operator = "request.userInfo.username != 'system:serviceaccount:cadastre-system:cadastre-controller-manager'"
	want := map[string][]string{
		"cadastre-allocations": {"CREATE,UPDATE ipam.cadastre.dev ipallocations", operator, "Fail"},
		"cadastre-filled-in": {
			"UPDATE ipam.cadastre.dev ipclaims,ippools,localippools", "UPDATE ipam.cluster.x-k8s.io ipaddressclaims", operator, "Fail",
		},
		"cadastre-kept": {"UPDATE ipam.cadastre.dev ipclaims", operator, "Fail"},
	}
	got := map[string][]string{}
	files, err := filepath.Glob("../../../config/policy/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, "../../../config/policy/mutating/kept.yaml") {
		// The compared fields are the same in policies that validate and that mutate.
		for _, policy := range read[admissionregistrationv1.ValidatingAdmissionPolicy](t, file) {
			if policy.Kind != "ValidatingAdmissionPolicy" && policy.Kind != "MutatingAdmissionPolicy" {
				continue
			}
			var lines []string
			for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
				operations := make([]string, len(rule.Operations))
				for i, operation := range rule.Operations {
					operations[i] = string(operation)
				}
				lines = append(lines, fmt.Sprint(strings.Join(operations, ","), " ", strings.Join(rule.APIGroups, ","), " ", strings.Join(rule.Resources, ",")))
			}
			for _, condition := range policy.Spec.MatchConditions {
				lines = append(lines, condition.Expression)
			}
			got[policy.Name] = append(lines, string(*policy.Spec.FailurePolicy))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the policies are not for that:\n%s", diff)
	}
}

// TestWebhookFailurePoliciesAreIntended compares which requests are refused if the webhook cannot be
// asked, and which pass.
func TestWebhookFailurePoliciesAreIntended(t *testing.T) {
	want := map[string]admissionregistrationv1.FailurePolicyType{
		"create.ipclaim.ipam.cadastre.dev":        admissionregistrationv1.Ignore, // is tried again by the next one
		"retry.ipclaim.ipam.cadastre.dev":         admissionregistrationv1.Fail,
		"create.ippool.ipam.cadastre.dev":         admissionregistrationv1.Fail,
		"create.localippool.ipam.cadastre.dev":    admissionregistrationv1.Fail,
		"keep.ippool.ipam.cadastre.dev":           admissionregistrationv1.Ignore, // restore the fields left out
		"keep.localippool.ipam.cadastre.dev":      admissionregistrationv1.Ignore,
		"default.ipclass.ipam.cadastre.dev":       admissionregistrationv1.Fail,
		"grant.ipaddressclaim.ipam.cadastre.dev":  admissionregistrationv1.Fail,
		"ipclass.ipam.cadastre.dev":               admissionregistrationv1.Fail,
		"create.ipaddress.ipam.cadastre.dev":      admissionregistrationv1.Ignore,
		"create.ipaddressclaim.ipam.cadastre.dev": admissionregistrationv1.Ignore,
		"update.ipclass.ipam.cadastre.dev":        admissionregistrationv1.Ignore,

		"MutatingWebhookConfiguration update.ipclaim.ipam.cadastre.dev":   admissionregistrationv1.Ignore, // restores the fields left out
		"ValidatingWebhookConfiguration update.ipclaim.ipam.cadastre.dev": admissionregistrationv1.Fail,

		"delete.ipallocation.ipam.cadastre.dev": admissionregistrationv1.Fail,
		"update.ippool.ipam.cadastre.dev":       admissionregistrationv1.Fail,
		"update.localippool.ipam.cadastre.dev":  admissionregistrationv1.Fail,
		"delete.ipclass.ipam.cadastre.dev":      admissionregistrationv1.Ignore,
		"delete.ippool.ipam.cadastre.dev":       admissionregistrationv1.Ignore,
		"delete.localippool.ipam.cadastre.dev":  admissionregistrationv1.Ignore,
	}
	got := map[string]admissionregistrationv1.FailurePolicyType{}
	for _, configuration := range read[admissionregistrationv1.ValidatingWebhookConfiguration](t, "../../../config/webhook/manifests.yaml") {
		for _, hook := range configuration.Webhooks { // of both kinds, as far as this goes
			name := hook.Name
			if name == "update.ipclaim.ipam.cadastre.dev" {
				name = configuration.Kind + " " + name
			}
			got[name] = *hook.FailurePolicy
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the webhooks fail otherwise:\n%s", diff)
	}
}

// read returns the objects of a manifest.
func read[T any](t *testing.T, file string) []T {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []T
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
		var one T
		err := documents.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
}
