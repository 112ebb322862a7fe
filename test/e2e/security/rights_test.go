package security

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// right is a verb on a resource, in the operator's namespace or in all.
type right struct{ verb, group, resource, namespace string }

func (r right) String() string {
	where := "everywhere"
	if r.namespace != "" {
		where = "in " + r.namespace
	}
	return fmt.Sprintf("%s %s.%s %s", r.verb, r.resource, r.group, where)
}

// unused returns rights that the operator has although no run of this suite is sure to use them,
// and the reasons.
func unused() map[right]string {
	own := cluster.Namespace
	const enforced = "asked of the authorizer alone, by OwnerReferencesPermissionEnforcement, which is on here: without it no IPAddress is made"
	return map[right]string{
		{"get", "ipam.cluster.x-k8s.io", "ipaddressclaims", ""}:                        "if the holder of a record is in doubt",
		{"get", "ipam.cluster.x-k8s.io", "ipaddresses", ""}:                            "if the cache does not have the IPAddress of a claim that has a record",
		{"update", "ipam.cluster.x-k8s.io", "ipaddressclaims/finalizers", ""}:          enforced,
		{"update", "ipam.cadastre.dev", "ippools/finalizers", ""}:                      enforced,
		{"update", "ipam.cadastre.dev", "localippools/finalizers", ""}:                 enforced,
		{"patch", "events.k8s.io", "events", ""}:                                       "an Event that is repeated",
		{"get", "ipam.cadastre.dev", "localippools", ""}:                               "if the cache does not have a pool that was just made",
		{"create", "", "secrets", own}:                                                 "an apply that creates is authorized as create, too, but noted as patch",
		{"get", "", "secrets", own}:                                                    "if the cache does not have the Secret that another replica has just made",
		{"get", "", "namespaces", ""}:                                                  "if the cache does not have a namespace that was just made",
		{"get", "ipam.cadastre.dev", "ipclasses", ""}:                                  "if the cache does not have a class that was just made",
		{"get", "ipam.cadastre.dev", "ipallocations", ""}:                              "if there is a foreign finalizer on a record, or the view does not have it",
		{"get", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", ""}:   "if the cache is behind",
		{"get", "admissionregistration.k8s.io", "validatingwebhookconfigurations", ""}: "if the cache is behind",
	}
}

// rightsAreUsed compares the rights of the operator with its requests.
func (w *world) rightsAreUsed() {
	granted := w.granted()
	audited, err := w.Audit()
	suite.Must(w, err)
	used := map[right]bool{}
	for _, a := range audited {
		if a.ObjectRef.Resource == "" {
			continue // discovery
		}
		if a.Forbidden() || a.ResponseStatus.Code == http.StatusForbidden {
			w.Errorf("it has no right to: %s %s", a.Verb, a.RequestURI)
			continue
		}
		resource := a.ObjectRef.Resource
		if a.ObjectRef.Subresource != "" {
			resource += "/" + a.ObjectRef.Subresource
		}
		r := right{a.Verb, a.ObjectRef.APIGroup, resource, ""}
		if own := (right{r.verb, r.group, r.resource, cluster.Namespace}); granted[own] && a.ObjectRef.Namespace == cluster.Namespace {
			r = own
		}
		used[r] = true
	}
	exceptions := unused()
	for r := range granted {
		listed := r
		if listed.verb = "watch"; r.verb == "list" && used[listed] {
			continue // a watch brings the list with it, but not from every API server
		}
		if !used[r] && exceptions[r] == "" {
			w.Errorf("it has a right that it does not use: %s", r)
		}
	}
	for r := range exceptions {
		if !granted[r] {
			w.Errorf("an exception for a right that it does not have: %s", r)
		}
	}
	w.Logf("%d requests; %d rights granted, %d used", len(audited), len(granted), len(used))
	w.Logf("used: %v", slices.Sorted(maps.Keys(texts(used))))
}

func texts(rights map[right]bool) map[string]bool {
	all := map[string]bool{}
	for r := range rights {
		all[r.String()] = true
	}
	return all
}

// granted returns the rights of the operator's service account, one by one.
func (w *world) granted() map[right]bool {
	w.Helper()
	all := map[right]bool{}
	add := func(namespace string, rules []rbacv1.PolicyRule) {
		for _, rule := range rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						r := right{verb, group, resource, namespace}
						if verb == "*" || resource == "*" || group == "*" {
							w.Errorf("a wildcard: %s", r)
						}
						if resource == "secrets" && (namespace == "" || len(rule.ResourceNames) == 0) {
							w.Errorf("more than its own Secret: %s", r)
						}
						all[r] = true
					}
				}
			}
		}
	}
	everywhere := &rbacv1.ClusterRoleBindingList{}
	suite.Must(w, w.List(w.Context(), everywhere))
	for _, binding := range everywhere.Items {
		if isOperators(binding.Subjects) {
			add("", w.rules("", binding.RoleRef))
		}
	}
	within := &rbacv1.RoleBindingList{}
	suite.Must(w, w.List(w.Context(), within))
	for _, binding := range within.Items {
		if isOperators(binding.Subjects) {
			add(binding.Namespace, w.rules(binding.Namespace, binding.RoleRef))
		}
	}
	return all
}

func isOperators(subjects []rbacv1.Subject) bool {
	return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Name == cluster.ServiceAccount || strings.Contains(s.Name, cluster.Namespace)
	})
}

func (w *world) rules(namespace string, ref rbacv1.RoleRef) []rbacv1.PolicyRule {
	w.Helper()
	if ref.Kind == "Role" {
		role := &rbacv1.Role{}
		suite.Must(w, w.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: ref.Name}, role))
		return role.Rules
	}
	role := &rbacv1.ClusterRole{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Name: ref.Name}, role))
	return role.Rules
}
