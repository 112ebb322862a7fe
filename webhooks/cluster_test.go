package webhooks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

// newClusterStage returns a stage with the classes of networks, and claims of earlier attempts.
func newClusterStage(t *testing.T) *stage {
	t.Helper()
	s := newStage(t)
	furnishClusters(t, s)
	return s
}

// createCluster sends the create of a Cluster as the attempt with the UID.
func (s *stage) createCluster(t *testing.T, uid types.UID, object string) string {
	t.Helper()
	req := review("Cluster", object, "", 0)
	req.UID = uid
	return s.answer(t, req)
}

// claimOf returns the claim of a Cluster that has the identity; nil if there is none.
func (s *stage) claimOf(t *testing.T, identity string) *v1alpha1.IPClaim {
	t.Helper()
	list := &v1alpha1.IPClaimList{}
	must(t, s.store.List(t.Context(), list))
	for i := range list.Items {
		if list.Items[i].Annotations[v1alpha1.AnnotationClusterNetwork] == identity {
			return &list.Items[i]
		}
	}
	return nil
}

func wantPrefix(t *testing.T, answer, prefix string) {
	t.Helper()
	if !strings.HasPrefix(answer, prefix) {
		t.Errorf("it is answered: %s\nwant %s", answer, prefix)
	}
}

// TestRefusedClusterDeletesNewClaims expects that the claims that a refused create has made are
// deleted as they were made, and that the claim of an earlier attempt stays.
func TestRefusedClusterDeletesNewClaims(t *testing.T) {
	s := newClusterStage(t)
	var made *v1alpha1.IPClaim
	s.fails.Store("delete IPClaim", func() error {
		made = s.claimOf(t, "again/services/0")
		return nil
	})
	wantPrefix(t, s.createCluster(t, "second", clusterJSON("again", `{}`, "pods=pods", "services=services", "control-plane-endpoint=full/29")), "507")
	if s.claimOf(t, "again/services/0") != nil || made == nil {
		t.Error("the claim that was made stays, or was not made")
	}
	if reused := s.claimOf(t, "again/pods/0"); reused == nil || reused.Annotations[v1alpha1.AnnotationAttempt] != "second" {
		t.Errorf("the claim of the earlier attempt is %+v", reused)
	}
	if n := len(s.deletions); n != 1 {
		t.Fatalf("%d deletions have preconditions, want 1", n)
	}
	if only := <-s.deletions; made == nil || only.UID == nil || *only.UID != made.UID || only.ResourceVersion == nil || *only.ResourceVersion != made.ResourceVersion {
		t.Errorf("the claim was deleted with the preconditions %+v, want those of %+v", only, made)
	}
}

// TestRefusedClusterKeepsClaimOfNextAttempt lets another attempt use the claim before it is deleted.
func TestRefusedClusterKeepsClaimOfNextAttempt(t *testing.T) {
	s := newClusterStage(t)
	s.fails.Store("delete IPClaim", func() error {
		claim := s.claimOf(t, "prod/services/0")
		claim.Annotations[v1alpha1.AnnotationAttempt] = "next"
		return s.store.Update(t.Context(), claim)
	})
	wantPrefix(t, s.createCluster(t, "first", clusterJSON("prod", `{}`, "pods=full", "services=services")), "507")
	if s.claimOf(t, "prod/services/0") == nil {
		t.Error("the claim of the next attempt is deleted")
	}
}

// TestCanceledCreateOfClusterLeavesNoClaim lets the caller go away while the claim is stored.
func TestCanceledCreateOfClusterLeavesNoClaim(t *testing.T) {
	s := newClusterStage(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.fails.Store("create IPClaim", func() error {
		cancel()
		return nil
	})
	req := review("Cluster", clusterJSON("prod", `{}`, "pods=pods"), "", 0)
	wantPrefix(t, answerOf(t, s.mutate["Cluster"].Handle(ctx, req), req), "429")
	if left := s.claimOf(t, "prod/pods/0"); left != nil || len(s.deletions) != 1 {
		t.Errorf("the claim is %+v after %d deletions", left, len(s.deletions))
	}
}

// TestSecondAttemptReusesClaim expects the block of the first attempt, and a dry run to show it.
func TestSecondAttemptReusesClaim(t *testing.T) {
	s := newClusterStage(t)
	object := clusterJSON("prod", `{}`, "pods=pods", "services=services/22")
	first := s.createCluster(t, "first", object)
	wantPrefix(t, first, "allowed")
	before := s.claimOf(t, "prod/pods/0")
	if preview := s.answer(t, review("Cluster", object, "", dry)); preview != first {
		t.Errorf("a dry run is answered: %s\nwant %s", preview, first)
	}
	if second := s.createCluster(t, "second", object); second != first {
		t.Errorf("the second attempt is answered: %s\nwant %s", second, first)
	}
	after := s.claimOf(t, "prod/pods/0")
	if before.Annotations[v1alpha1.AnnotationAttempt] != "first" || after.Annotations[v1alpha1.AnnotationAttempt] != "second" || after.UID != before.UID || len(s.deletions) > 0 {
		t.Errorf("the claim was %+v\nand is %+v", before.ObjectMeta, after.ObjectMeta)
	}
}

// TestLeftoverThatChangesIsRetried changes or deletes the claim of an earlier attempt while another
// one is about to use it.
func TestLeftoverThatChangesIsRetried(t *testing.T) {
	var rows []messages.Row
	for name, test := range map[string]struct {
		call   string
		change func(*testing.T, *stage) error
	}{
		"it is written before the patch": {"patch IPClaim", func(*testing.T, *stage) error {
			return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("ipclaims").GroupResource(), "c", errors.New("the object has been modified"))
		}},
		"it is deleted before the patch": {"patch IPClaim", func(t *testing.T, s *stage) error {
			t.Helper()
			return s.store.Delete(t.Context(), s.claimOf(t, "again/pods/0"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newClusterStage(t)
			s.fails.Store(test.call, func() error { return test.change(t, s) })
			answer := s.createCluster(t, "second", clusterJSON("again", `{}`, "pods=pods"))
			wantPrefix(t, answer, "429")
			found, err := messages.AnswersIn("== create Cluster: again\n" + answer)
			must(t, err)
			rows = append(rows, found...)
		})
	}
	messages.Golden(t, rows)
}

// TestLeftoverIsReadAfterItsClaimIsRefused lets the claim of an earlier attempt go, or its last read fail,
// after the webhook on claims has read it.
func TestLeftoverIsReadAfterItsClaimIsRefused(t *testing.T) {
	for _, how := range []uint8{0, dry} {
		for want, change := range map[string]func(*stage) error{
			"429": func(s *stage) error { return s.store.Delete(t.Context(), s.claimOf(t, "again/pods/0")) },
			"500": func(*stage) error { return errors.New("the connection is cut") },
		} {
			s, reads := newClusterStage(t), 0
			s.fails.Store("get IPClaim", func() error {
				if reads++; reads == 3 {
					return change(s)
				}
				return nil
			})
			answer := s.answer(t, review("Cluster", clusterJSON("again", `{}`, "pods=pods"), "", how))
			if wantPrefix(t, answer, want); want == "429" && !strings.Contains(answer, "has changed") {
				t.Errorf("it is answered: %s", answer)
			}
		}
	}
}

// TestDryRunOfClusterHoldsNothing expects the first blocks after any number of dry runs.
func TestDryRunOfClusterHoldsNothing(t *testing.T) {
	s := newClusterStage(t)
	object := clusterJSON("prod", `{}`, "pods=pods", "services=services")
	first := s.answer(t, review("Cluster", object, "", dry))
	wantPrefix(t, first, "allowed")
	if second := s.answer(t, review("Cluster", object, "", dry)); second != first {
		t.Errorf("the second dry run is answered: %s\nwant %s", second, first)
	}
}

// TestRefusalOfClaimThatIsRetriedStatesWhen lets the API server refuse a claim for a moment.
func TestRefusalOfClaimThatIsRetriedStatesWhen(t *testing.T) {
	s := newClusterStage(t)
	for code, refusal := range map[int32]error{429: apierrors.NewTooManyRequests("busy", 9), 403: apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("ipclaims").GroupResource(), "c", errors.New("quota"))} {
		s.fails.Store("create IPClaim", refusal)
		response := s.mutate["Cluster"].Handle(t.Context(), review("Cluster", clusterJSON("prod", `{}`, "pods=pods"), "", 0))
		if details := response.Result.Details; response.Result.Code != code || (details != nil) != (code == 429) || details != nil && details.RetryAfterSeconds != 1 {
			t.Errorf("the answer is %+v", response.Result)
		}
	}
}

// TestClusterWithMostEntriesIsJudged expects that the bound is of what networks need.
func TestClusterWithMostEntriesIsJudged(t *testing.T) {
	s := newClusterStage(t)
	object := func(blocks int) string {
		return clusterJSON("prod", `{"clusterNetwork":{"pods":{"cidrBlocks":[""`+strings.Repeat(`,""`, blocks-1)+`]}}}`, "pods=pods")
	}
	others := count(networkParts([]byte(object(1)))).total - 1
	for blocks, isTooMany := range map[int]bool{maxEntries - others: false, maxEntries - others + 1: true} {
		if answer := s.answer(t, review("Cluster", object(blocks), "", 0)); strings.Contains(answer, "Too many") != isTooMany {
			t.Errorf("%d blocks are answered: %.200s", blocks, answer)
		}
	}
}

// TestClaimWaitsByPurpose covers the claims for which the operator itself asks, and those of users
// that look like them.
func TestClaimWaitsByPurpose(t *testing.T) {
	const network, attempt = v1alpha1.AnnotationClusterNetwork, v1alpha1.AnnotationAttempt
	created := map[string]string{network: "prod/pods/0", attempt: "1"}
	existing := map[string]string{network: "prod/pods/0"}
	const taken, exhausted, missing, outside = `{"className":"pods","cidr":"10.64.0.0/20"}`, `{"className":"full"}`, `{"className":"missing"}`, `{"className":"pods","cidr":"10.0.0.0/20"}`
	for name, test := range map[string]struct {
		user        string
		annotations map[string]string
		want        map[string]string
	}{
		"of a new Cluster":                       {operator, created, map[string]string{taken: "409", exhausted: "507", missing: "422", outside: "422"}},
		"of a Cluster that exists":               {operator, existing, map[string]string{taken: "allowed", exhausted: "allowed", missing: "allowed", outside: "allowed"}},
		"of the operator, without a Cluster":     {operator, map[string]string{attempt: "1"}, map[string]string{taken: "409", exhausted: "allowed", missing: "allowed", outside: "422"}},
		"of a user":                              {entitled, nil, map[string]string{taken: "409", exhausted: "allowed", missing: "allowed", outside: "422"}},
		"of a user, that looks like a new one":   {entitled, created, map[string]string{taken: "409", exhausted: "allowed", missing: "allowed", outside: "422"}},
		"of a user, that looks like an existing": {entitled, existing, map[string]string{taken: "409", exhausted: "allowed", missing: "allowed", outside: "422"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newClusterStage(t)
			for spec, want := range test.want {
				answer := s.answer(t, claimOfUser(test.user, test.annotations, spec))
				wantPrefix(t, answer, want)
				if want == "allowed" && !strings.Contains(answer, `"phase":"Pending"`) {
					t.Errorf("%s does not wait: %s", spec, answer)
				}
			}
		})
	}
}

// claimOfUser returns the create of a claim by a user.
func claimOfUser(user string, annotations map[string]string, spec string) admission.Request {
	entries := make([]string, 0, len(annotations))
	for key, value := range annotations {
		entries = append(entries, fmt.Sprintf("%q:%q", key, value))
	}
	req := review("IPClaim", `{"metadata":{"name":"c","namespace":"team","annotations":{`+strings.Join(entries, ",")+`}},"spec":`+spec+`}`, "", 0)
	req.UserInfo.Username = user
	return req
}

// TestRequesterOfNetworkIsCreatorOfCluster expects the creator in the record, and in a claim that
// waits, but not a user that the claim of another user states.
func TestRequesterOfNetworkIsCreatorOfCluster(t *testing.T) {
	s := newClusterStage(t)
	wantPrefix(t, s.createCluster(t, "first", clusterJSON("prod", `{}`, "pods=pods")), "allowed")
	stated := map[string]string{v1alpha1.AnnotationClusterNetwork: "prod/services/0", v1alpha1.AnnotationRequestedBy: "jane"}
	for user, spec := range map[string]string{operator: `{"className":"services"}`, entitled: `{"className":"vips"}`} {
		wantPrefix(t, s.answer(t, claimOfUser(user, stated, spec)), "allowed")
	}
	list := &v1alpha1.IPAllocationList{}
	must(t, s.store.List(t.Context(), list))
	got := map[string]string{}
	for _, record := range list.Items {
		got[record.Spec.ClassName] = record.Spec.RequestedBy
	}
	if got["services"] != "jane" || got["vips"] != entitled {
		t.Errorf("the requesters are %v", got)
	}
	claim := s.claimOf(t, "prod/pods/0")
	record := &v1alpha1.IPAllocation{}
	must(t, s.store.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: claim.Spec.AllocationName}, record))
	if record.Spec.RequestedBy != entitled {
		t.Errorf("the requester is %q, want %q", record.Spec.RequestedBy, entitled)
	}
	for user, want := range map[string]string{operator: "jane", entitled: entitled} {
		req := claimOfUser(user, stated, `{"className":"full"}`)
		response := s.mutate["IPClaim"].Handle(t.Context(), req)
		d, err := newDraft(applyAnswer(t, req, &response))
		must(t, err)
		if got := d.text("metadata", "annotations", v1alpha1.AnnotationRequestedBy); got != want {
			t.Errorf("a waiting claim of %s has the requester %q, want %q", user, got, want)
		}
	}
}

// TestGeneratedNameOfClusterIsInClaim expects that the Cluster gets the name that its claim has.
func TestGeneratedNameOfClusterIsInClaim(t *testing.T) {
	s := newClusterStage(t)
	req := review("Cluster", strings.Replace(clusterJSON("prod-", `{}`, "pods=pods"), `"name"`, `"generateName"`, 1), "", 0)
	response := s.mutate["Cluster"].Handle(t.Context(), req)
	d, err := newDraft(applyAnswer(t, req, &response))
	must(t, err)
	name := d.text("metadata", "name")
	claim := s.claimOf(t, name+"/pods/0")
	if len(name) != len("prod-")+8 || claim == nil || claim.Labels["cluster.x-k8s.io/cluster-name"] != name {
		t.Errorf("the Cluster is named %q, and the claim is %+v", name, claim)
	}
}

func TestNetworksOfClustersAreCounted(t *testing.T) {
	s := newClusterStage(t)
	registry := prometheus.NewRegistry()
	for _, c := range s.services.Metrics.Collectors() {
		must(t, registry.Register(c))
	}
	s.createCluster(t, "1", clusterJSON("prod", `{}`, "pods=pods", "services=services"))
	s.createCluster(t, "2", clusterJSON("other", `{}`, "pods=full"))
	s.answer(t, review("Cluster", clusterJSON("third", `{}`, "pods=pods"), "", dry))
	want := `# HELP cadastre_cluster_networks_total ` + metrics.DefinitionOf(metrics.ClusterNetworks).Help + `
# TYPE cadastre_cluster_networks_total counter
cadastre_cluster_networks_total{purpose="pods",result="filled"} 1
cadastre_cluster_networks_total{purpose="pods",result="refused"} 1
cadastre_cluster_networks_total{purpose="services",result="filled"} 1
`
	must(t, testutil.GatherAndCompare(registry, strings.NewReader(want), metrics.ClusterNetworks))
}
