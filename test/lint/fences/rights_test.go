package fences

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cadastre-dev/cadastre/hack/apireference"
	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

// TestPoliciesExemptOnlyOperator compares the resources of the policies, and the users
// to which they do not apply.
func TestPoliciesExemptOnlyOperator(t *testing.T) {
	const operator = "request.userInfo.username != 'system:serviceaccount:cadastre-system:cadastre-controller-manager'"
	want := map[string][]string{
		"cadastre-allocations":      {"CREATE,UPDATE ipam.cadastre.dev ipallocations", operator, "Fail"},
		"cadastre-cluster-networks": {"CREATE,UPDATE cluster.x-k8s.io clusters", "!has(object.metadata.deletionTimestamp)", "Fail"},
		"cadastre-filled-in": {
			"UPDATE ipam.cadastre.dev ipclaims,ippools,localippools", "UPDATE ipam.cluster.x-k8s.io ipaddressclaims", operator, "Fail",
		},
		"cadastre-kept": {"UPDATE ipam.cadastre.dev ipclaims", operator, "Fail"},
	}
	got := map[string][]string{}
	files, err := filepath.Glob("../../../config/policy/*.yaml")
	must.Succeed(t, err)
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
			for _, rule := range policy.Spec.MatchConstraints.ExcludeResourceRules {
				lines = append(lines, fmt.Sprint("not ", rule))
			}
			got[policy.Name] = append(lines, string(*policy.Spec.FailurePolicy))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the policies are not for that:\n%s", diff)
	}
}

// read returns the objects of a manifest.
func read[T any](t *testing.T, file string) []T {
	t.Helper()
	content, err := os.ReadFile(file)
	must.Succeed(t, err)
	objects, err := manifests.Decode(content)
	must.Succeed(t, err)
	all := make([]T, len(objects))
	for i, obj := range objects {
		all[i] = *must.As[T](t, obj)
	}
	return all
}

// withoutEvent has the reasons without an event, and the explanation.
var withoutEvent = map[string]string{
	"HasRoom":         "of the condition Exhausted: that of Ready changes too",
	"Recorded":        "of the condition Allocated: that of Ready changes too",
	"Terminating":     "the event DeletionBlocked says by how many blocks; nothing remains of other pools",
	"NoPools":         "of a class",
	"NotDefault":      "of a class",
	"NotServed":       "no controller of this operator serves the claim",
	"ClusterNotFound": "the condition of the IPAddressClaim says it",
}

// TestDocumentedEventsMatchAPI compares the table of events with the constants of the
// API: a new reason has an event, or stands above.
func TestDocumentedEventsMatchAPI(t *testing.T) {
	_, table, _ := strings.Cut(documents(t)["docs/operations.md"], "<!-- events:begin -->")
	table, _, _ = strings.Cut(table, "<!-- events:end -->")
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| [A-Z][^|]*\| (?:Normal|Warning) \| ([^|]*) \|`).FindAllStringSubmatch(table, -1) {
		for reason := range strings.SplitSeq(row[1], ", ") {
			documented[strings.Trim(reason, "`")] = true
		}
	}
	api, err := apireference.Read("../../..")
	must.Succeed(t, err)
	stated := sets.KeySet(api.Reasons).Insert(api.Events...)
	for reason := range stated {
		if documented[reason] == (withoutEvent[reason] != "") {
			t.Errorf("the reason %s is in the table of events: %t, and among those without event: %t", reason, documented[reason], withoutEvent[reason] != "")
		}
	}
	for reason := range documented {
		if !stated.Has(reason) {
			t.Errorf("the table of events has %q, which is no reason", reason)
		}
	}
	for reason := range withoutEvent {
		if !stated.Has(reason) {
			t.Errorf("there is no reason %s any more", reason)
		}
	}
}
