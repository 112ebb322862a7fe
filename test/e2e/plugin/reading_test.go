package plugin

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// secret is in the name of a claim of another tenant.
const secret = "goldfish"

// reading adds the objects that the reading commands show, and runs them:
//
//	domain yard   yard 198.51.100.0/24 with a network; in team-b one block of each state, and
//	              one that is drained
//	              shut 203.0.113.0/28, paused, and a claim that waits for a block of it
//	Cluster prod of team-a: Machine prod-0 ── LabVM prod-0 ── IPAddressClaim machine-0, and
//	              an IPAddressClaim without an address
func (w *world) reading(t *testing.T) {
	w.fillYard()
	w.shut()
	w.ownMachine()
	w.countsAgree(t)
	t.Run("who", w.who)
	t.Run("tree", w.tree)
	t.Run("map", w.maps)
	t.Run("free", w.free)
	t.Run("classes", w.classes)
	t.Run("completion", w.completion)
}

func (w *world) fillYard() {
	yard := build.Pool("yard").CIDR("198.51.100.0/24").Domain("yard").Network(24, "198.51.100.1").Reserved("198.51.100.248/29").
		With(func(s *v1alpha1.IPPoolSpec) {
			s.AllowRetain = true
			s.ReuseDelay = &metav1.Duration{Duration: time.Hour}
		}).Obj()
	w.Pools(yard)
	retained := func(s *v1alpha1.IPClaimSpec) { s.ReclaimPolicy = v1alpha1.ReclaimRetain }
	used := func(s *v1alpha1.IPClaimSpec) {
		s.OwnerRef = &v1alpha1.ClaimOwner{APIGroup: "apps", Kind: "Deployment", Name: "web"}
	}
	w.Created(
		build.Claim("team-b", secret).Pool("yard").With(used).Obj(),
		build.Claim("team-b", "drained").Pool("yard").Obj(),
		build.Claim("team-b", "kept").Pool("yard").With(retained).Obj(),
		build.Claim("team-b", "cooled").Pool("yard").Obj(),
	)
	w.Retained("team-b", "kept")
	w.becomes("team-b", "cooled", v1alpha1.AllocationCooling)
	change := client.MergeFrom(yard.DeepCopy()) // of any version: the operator writes the status meanwhile
	yard.Spec.Reserved = append(yard.Spec.Reserved, "198.51.100.3")
	suite.Must(w, w.Patch(w.Context(), yard, change))
	w.Await("the status of yard counts the drained blocks", func(ctx context.Context) bool {
		return w.Get(ctx, client.ObjectKeyFromObject(yard), yard) == nil && yard.Status.Capacity.OutOfRange == "1"
	})
}

// shut makes a pool that is paused.
func (w *world) shut() {
	pool := build.Pool("shut").CIDR("203.0.113.0/28").Domain("yard").Obj()
	w.Pools(pool)
	before := pool.DeepCopy()
	metav1.SetMetaDataAnnotation(&pool.ObjectMeta, v1alpha1.AnnotationPaused, "")
	suite.Must(w, w.Patch(w.Context(), pool, client.MergeFrom(before)))
	w.phase("shut", v1alpha1.PoolPaused)
	w.Created(build.Claim("team-b", "waits").Pool("shut").CIDR("203.0.113.4/30").Obj())
}

// becomes deletes a claim, and waits until its block has the state.
func (w *world) becomes(namespace, name string, state v1alpha1.AllocationState) {
	w.Helper()
	claim := &v1alpha1.IPClaim{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: name}, claim))
	w.Deleted(claim)
	record := &v1alpha1.IPAllocation{}
	w.Await(name+" is "+string(state), func(ctx context.Context) bool {
		return w.Get(ctx, client.ObjectKey{Namespace: namespace, Name: claim.Spec.AllocationName}, record) == nil && record.Spec.State == state
	})
}

// ownMachine gives machine-0 the owners that it has with an infrastructure provider.
func (w *world) ownMachine() {
	kind := schema.GroupVersionKind{Group: "infrastructure.example.com", Version: "v1", Kind: "LabVM"}
	w.Created(crdOf(kind, "labvms"))
	cluster := &clusterv1.Cluster{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Namespace: "team-a", Name: "prod"}, cluster))
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "prod-0", OwnerReferences: ownedBy(cluster, clusterv1.GroupVersion.WithKind("Cluster"))},
		Spec: clusterv1.MachineSpec{
			ClusterName:       "prod",
			Bootstrap:         clusterv1.Bootstrap{DataSecretName: new("prod-0")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: kind.Group, Kind: kind.Kind, Name: "prod-0"},
		},
	}
	w.Created(machine)
	vm := &unstructured.Unstructured{}
	vm.SetGroupVersionKind(kind)
	vm.SetNamespace("team-a")
	vm.SetName("prod-0")
	vm.SetOwnerReferences(ownedBy(machine, clusterv1.GroupVersion.WithKind("Machine")))
	w.Await("LabVMs are served", func(ctx context.Context) bool { return w.Create(ctx, vm) == nil })
	claim := &ipamv1.IPAddressClaim{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Namespace: "team-a", Name: "machine-0"}, claim))
	before := claim.DeepCopy()
	claim.OwnerReferences = ownedBy(vm, kind)
	suite.Must(w, w.Patch(w.Context(), claim, client.MergeFrom(before)))
	w.Created(build.AddressClaim("team-a", "lost").Pool("nowhere").ClusterLabel("prod").Obj())
}

func ownedBy(owner client.Object, kind schema.GroupVersionKind) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)}
}

// crdOf returns a CRD of a kind about which nothing is known.
func crdOf(kind schema.GroupVersionKind, plural string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + kind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind.Kind, Plural: plural},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
}

func (w *world) who(t *testing.T) {
	w.as(t, "").plays("who", nil)
	w.as(t, "alice").plays("who-tenant", nil, secret, "team-b")
	nobody := w.as(t, "nobody")
	nobody.runs("kubectl ipam who 10.1.0.9 -n team-a").ends(command.ExitNotFound).hides("team-b").hides("apps")
}

func (w *world) tree(t *testing.T) {
	w.as(t, "").plays("tree", nil)
	w.as(t, "alice").plays("tree-tenant", nil, secret, "team-b")
}

func (w *world) maps(t *testing.T) {
	w.as(t, "").plays("map", nil)
	w.as(t, "alice").plays("map-tenant", nil, "team-b")
}

func (w *world) free(t *testing.T) {
	w.as(t, "").plays("free", nil)
	w.as(t, "alice").plays("free-tenant", nil, "team-b")
	w.as(t, "nobody").runs("kubectl ipam free west -n team-a --length 24").ends(command.ExitForbidden)
}

func (w *world) classes(t *testing.T) {
	w.Created(build.Class("owned").Length(24).With(func(s *v1alpha1.IPClassSpec) {
		s.Visibility, s.Project = v1alpha1.VisibilityConsumer, "team-b"
	}).Obj())
	w.as(t, "").plays("classes", nil)
	w.as(t, "alice").plays("classes-tenant", nil, "team-b")
}

// completion requests completions as a shell does.
func (w *world) completion(t *testing.T) {
	w.as(t, "").plays("completion", nil)
	w.as(t, "alice").plays("completion-tenant", nil, "west")
}

// history asks for the former holders of blocks, from the file that the operator writes.
func (w *world) history(t *testing.T) {
	w = &world{World: w.For(t), historyFile: w.historyFile}
	w.Pools(build.Pool("archive").CIDR("203.0.113.64/28").Domain("yard").Obj())
	first := build.Claim("team-b", "archived").Pool("archive").CIDR("203.0.113.64/30").Obj()
	w.Created(first)
	err := w.Create(t.Context(), build.Claim("team-a", "late").Pool("archive").CIDR("203.0.113.65/32").Obj())
	if !apierrors.IsConflict(err) {
		t.Fatalf("asking for a block that is held: %v, want a conflict", err)
	}
	w.Deleted(first)
	w.Await("the release is in the history", func(context.Context) bool {
		return strings.Contains(w.historyText(t), `"action":"Released","reason":"HolderDeleted","block":"203.0.113.64/30"`)
	})
	w.Created(build.Claim("team-a", "late").Pool("archive").CIDR("203.0.113.65/32").Obj())
	w.Await("the next grant is in the history", func(context.Context) bool {
		return strings.Contains(w.historyText(t), `"block":"203.0.113.65/32","poolKind":"IPPool","pool":"archive"`)
	})

	admin := w.as(t, "")
	suite.Must(t, os.WriteFile(filepath.Join(admin.dir, "history.jsonl"), []byte(w.historyText(t)), 0o600))
	suite.Must(t, os.WriteFile(filepath.Join(admin.dir, "notes.txt"), []byte("nothing of it\n"), 0o600))
	admin.plays("who-history", nil)
}

func (w *world) historyText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(w.historyFile)
	suite.Must(t, err)
	return string(text)
}

// pools shows how full the pools are.
func (w *world) pools(t *testing.T) {
	w.countsAgree(t)
	w.as(t, "").plays("pools", nil)
	w.as(t, "alice").plays("pools-tenant", nil, "team-b")
}

// countsAgree waits until each pool's status has the sums of its records.
func (w *world) countsAgree(t *testing.T) {
	t.Helper()
	var diff string
	defer func() {
		if diff != "" {
			t.Errorf("the status of pools and their records differ (-records +status):\n%s", diff)
		}
	}()
	w.For(t).Await("the status of all pools matches their records", func(context.Context) bool {
		diff = cmp.Diff(w.poolUses(t, "--count"), w.poolUses(t))
		return diff == ""
	})
}

// poolUses returns the output of pools, without the source of the figures.
func (w *world) poolUses(t *testing.T, flags ...string) []map[string]any {
	t.Helper()
	line := "kubectl ipam pools -o json"
	for _, flag := range flags {
		line += " " + flag
	}
	report := struct{ Pools []map[string]any }{}
	suite.Must(t, json.Unmarshal([]byte(w.as(t, "").runs(line).ends(command.ExitDone).out), &report))
	for _, pool := range report.Pools {
		for _, field := range []string{"source", "retained", "cooling"} {
			delete(pool, field)
		}
	}
	return report.Pools
}
