// Package security checks the documented rights of the operator and of tenants.
package security

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
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
	w.Logf("used: %v", slices.Collect(maps.Keys(used)))
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
						if resource == "secrets" && namespace == "" || len(rule.ResourceNames) == 0 && isNamed(r) {
							w.Errorf("more than its own objects: %s", r)
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

// isNamed reports whether a right must be for objects by name. RBAC cannot do that for a create by POST.
func isNamed(r right) bool {
	return r.group == "admissionregistration.k8s.io" || r.resource == "secrets" || r.resource == "leases" && r.verb != "create"
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

// world holds a cluster with a client, for one test.
type world struct{ *suite.World }

func TestSecurity(t *testing.T) {
	w := suite.Start(t, cluster.Options{
		Managers: 2, ControllerManager: true, Audit: true,
		ManagerArgs: []string{"--orphan-grace=2s", fmt.Sprint("--unclaimed-limit=", unclaimedLimit)}, APIServerFlags: map[string]string{"enable-admission-plugins": "OwnerReferencesPermissionEnforcement"},
	})
	for _, step := range []struct {
		name string
		do   func(*world)
	}{
		{"metrics and profiles are for users that may get them", (*world).diagnosticsAreGuarded},
		{"an answer is the same for taken and for forbidden blocks", (*world).answersAreAlike},
		{"a request of any size is answered", (*world).sizeIsBounded},
		{"a request that does not end is answered", (*world).timeIsBounded},
		{"a namespace whose claims are never stored is stopped, and no other", (*world).unboundIsBounded},
		{"webhooks answer no path without the secret", (*world).onlyTheSecretIsAnswered},
		{"a path that was replaced is answered for a minute, and no create fails in that time", (*world).pathsAreReplaced},
		{"manifests that others apply change neither path nor bundle", (*world).manifestsLeavePathsAlone},
		{"everything that the operator does", (*world).everythingIsDone},
		{"a right that comes late counts for service accounts, and no edit grants it", (*world).aLateRightCounts},
		{"an object can be edited and deleted, whatever its spec", (*world).everythingIsEditable},
		{"the operator uses the rights that it has, and has those that it uses", (*world).rightsAreUsed},
	} {
		t.Run(step.name, func(t *testing.T) { step.do(&world{w.For(t)}) })
	}
}

// everythingIsDone lets the operator do all that it can: it needs every right for something.
func (w *world) everythingIsDone() {
	w.Namespace("all")
	waits := build.Pool("all-child").Child("all-root", 29).Obj()
	w.Created(waits) // no parent yet
	w.Created(build.Class("all").Length(32).Obj(), build.Class("all-kept").Length(32).With(func(s *v1alpha1.IPClassSpec) {
		s.ReclaimPolicy, s.RetentionPeriod = v1alpha1.ReclaimRetain, &metav1.Duration{Duration: 3600e9}
	}).Obj())
	w.Pools(build.Pool("all-root").CIDR("10.8.0.0/28").Classes("all", "all-kept").Obj())
	w.Ready(waits)
	w.aClaimWaits()
	w.aBlockIsKept()
	w.Created(build.NamespaceOf("others", "all-others"))
	w.Pools(build.Pool("all-owned").CIDR("10.8.1.0/24").With(func(s *v1alpha1.IPPoolSpec) { s.Project = "others" }).Obj())
	asked := build.Claim("all", "grant").Pool("all-owned").Length(32).Obj()
	w.Created(asked) // an administrator may use it
	w.Bound(asked)
	w.clusterAPIComes()
	w.addressesAreMended()
	w.clustersGetNetworks()
	w.Created(build.Claim("all", "nothing").Class("no-such-class").Obj())
	w.Created(build.Claim("all", "nowhere").Pool("no-such-pool").Length(32).Obj())

	suite.Must(w, w.DeleteAllOf(w.Context(), &v1alpha1.IPClaim{}, client.InNamespace("all")))
	w.Deleted(waits)
	w.Await("the child is gone", func(ctx context.Context) bool {
		return client.IgnoreNotFound(w.Get(ctx, client.ObjectKeyFromObject(waits), waits)) == nil && waits.DeletionTimestamp != nil || w.Get(ctx, client.ObjectKeyFromObject(waits), waits) != nil
	})
	w.rollbacksAreCounted()
	for _, m := range w.Managers { // each leads once
		suite.Must(w, m.Restart(w.Context()))
	}
}

// rollbacksAreCounted expects that a replica notices if revisions go back, of each kind that the operator watches.
func (w *world) rollbacksAreCounted() {
	audited, err := w.Audit()
	suite.Must(w, err)
	scraper := w.Account("scraper")
	w.Created(build.ClusterBinding("scraper", "diagnostics", build.ServiceAccount("default", "scraper"))) // a role of an earlier step
	_, text := w.Diagnostics(0, "/metrics", scraper)
	counted, watched := sets.New[string](), sets.New[string]()
	for _, metric := range suite.Families(w, text)[metrics.StoreRollbacks].GetMetric() {
		counted.Insert(suite.Labels(metric)["kind"])
	}
	for _, a := range audited {
		if a.Verb == "watch" {
			gvk, err := w.RESTMapper().KindFor(schema.GroupVersionResource{Group: a.ObjectRef.APIGroup, Resource: a.ObjectRef.Resource})
			suite.Must(w, err)
			watched.Insert(gvk.Kind)
		}
	}
	if uncounted := watched.Difference(counted); len(uncounted) > 0 || len(watched) == 0 {
		w.Errorf("it watches %v, and does not count rollbacks of %v", sets.List(watched), sets.List(uncounted))
	}
}

// aClaimWaits makes a claim that the leader binds, when another is deleted.
func (w *world) aClaimWaits() {
	large, late := build.Claim("all", "large").Class("all").Length(29).Obj(), build.Claim("all", "late").Class("all").Length(29).Obj()
	w.Created(large, late)
	w.Deleted(large)
	w.Bound(late)
	w.Deleted(late)
}

// aBlockIsKept retains a block, and lets a claim of that name take it again.
func (w *world) aBlockIsKept() {
	kept := build.Claim("all", "kept").Class("all-kept").Obj()
	w.Created(kept)
	block := kept.Spec.CIDR
	w.Bound(kept)
	w.Retained("all", "kept")
	again := build.Claim("all", "kept").Class("all-kept").Obj()
	w.Created(again)
	if again.Spec.CIDR != block {
		w.Errorf("kept %s, and given %s", block, again.Spec.CIDR)
	}
	w.Bound(again)
}

// clusterAPIComes creates claims of Cluster API that are served, from a namespace's own pool too.
func (w *world) clusterAPIComes() {
	suite.Must(w, w.InstallClusterAPICRDs(w.Context()))
	local := build.Pool("all-local").CIDR("10.8.2.0/24").In("all")
	w.Created(local)
	theirs := build.AddressClaim("all", "theirs").Pool("all-owned").Obj()
	ofLocal := build.AddressClaim("all", "theirs-local").From(v1alpha1.GroupVersion.Group, "LocalIPPool", "all-local").Obj()
	w.Created(theirs, ofLocal)
	w.Served(theirs, ofLocal)
	w.Deleted(theirs, ofLocal)
	w.Gone(theirs, ofLocal)
	w.letGoOf(local)
	w.aClaimIsToldOf()
}

// aClaimIsToldOf makes an IPAddressClaim that waits, and awaits the event about it.
func (w *world) aClaimIsToldOf() {
	claim := build.AddressClaim("all", "in-vain").Pool("nowhere").Obj()
	w.Created(claim)
	w.Await("an event shows why the IPAddressClaim waits", func(ctx context.Context) bool {
		events := &eventsv1.EventList{}
		return w.List(ctx, events, client.InNamespace("all")) == nil &&
			slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool { return e.Regarding.UID == claim.UID })
	})
	w.Deleted(claim)
	w.Gone(claim)
}
