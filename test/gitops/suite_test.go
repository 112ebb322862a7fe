package gitops

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// world holds a cluster on which the operator was installed by Flux.
type world struct {
	*suite.World
	flux *ssa.ResourceManager
	// manifests holds those of the operator, without the Service of its webhooks, which the cluster
	// changes so that it leads to a process.
	manifests []*unstructured.Unstructured
}

// TestGitOps runs all stories one after the other on one cluster, as a repository lives.
func TestGitOps(t *testing.T) {
	w := install(t)
	for _, story := range []struct {
		name string
		tell func(*world, *testing.T)
	}{
		{"Flux sees no drift after the operator has filled in its manifests", (*world).fluxSeesNoDriftOfTheOperator},
		{"Flux applies, compares, applies again and prunes, in any order", (*world).fluxInAnyOrder},
		{"Flux applies changed objects and nothing else", (*world).fluxAppliesWhatHasChanged},
		{"Argo CD sees no difference, however it compares", (*world).argoSeesNoDifference},
		{"every kind in every phase has a health", (*world).healthOfEveryPhase},
	} {
		t.Run(story.name, func(t *testing.T) {
			story.tell(&world{World: w.For(t), flux: w.flux, manifests: w.manifests}, t)
		})
	}
}

// install starts a control plane, applies the operator's manifests with Flux, and runs a
// manager for its Deployment.
func install(t *testing.T) *world {
	t.Helper()
	w := &world{World: suite.Start(t, cluster.Options{Bare: true, ControllerManager: true, ClusterAPICRDs: true})}
	w.flux = ssa.NewResourceManager(w.Client(w.Config()), polling.NewStatusPoller(w.Client(w.Config()), w.RESTMapper(), polling.Options{}),
		ssa.Owner{Field: "kustomize-controller", Group: "kustomize.toolkit.fluxcd.io"})
	objects := w.rendered("config/default")
	_, err := w.flux.ApplyAllStaged(t.Context(), objects, ssa.DefaultApplyOptions())
	suite.Must(t, err)
	suite.Must(t, w.StartInstalled(t.Context(), cluster.Namespace, 1))
	for _, obj := range objects {
		if obj.GetKind() != "Service" {
			w.manifests = append(w.manifests, obj)
		}
	}
	return w
}

// rendered returns the objects of a kustomization, a directory of the module's root.
func (w *world) rendered(kustomization string) []*unstructured.Unstructured {
	w.Helper()
	objects, err := utils.ReadObjects(strings.NewReader(w.RunKubectl("kustomize", kustomization)))
	suite.Must(w, err)
	return objects
}

// samples returns those of the platform's and of a team's repository.
func (w *world) samples() []*unstructured.Unstructured {
	w.Helper()
	return append(w.rendered("config/samples/gitops/platform"), w.rendered("config/samples/gitops/team-a")...)
}

// shuffled returns the objects in an order by chance, but for namespaces, without which the API
// server takes no objects in them.
func shuffled(objects []*unstructured.Unstructured, random *rand.Rand) []*unstructured.Unstructured {
	var namespaces, otherObjects []*unstructured.Unstructured
	for _, obj := range objects {
		if obj.GetKind() == "Namespace" {
			namespaces = append(namespaces, obj.DeepCopy())
		} else {
			otherObjects = append(otherObjects, obj.DeepCopy())
		}
	}
	random.Shuffle(len(otherObjects), func(i, j int) { otherObjects[i], otherObjects[j] = otherObjects[j], otherObjects[i] })
	return append(namespaces, otherObjects...)
}

// versions shows which objects were written to: it returns generations, or resource versions of
// those that have none that counts writes of their spec alone.
func (w *world) versions(ctx context.Context, objects []*unstructured.Unstructured) map[string]string {
	w.Helper()
	versions := map[string]string{}
	for _, obj := range objects {
		live := w.live(ctx, obj)
		versions[nameOf(obj)] = fmt.Sprint("generation ", live.GetGeneration())
		if live.GetGeneration() == 0 || live.GetKind() == "IPClaim" { // its status is none of a subresource
			versions[nameOf(obj)] = live.GetResourceVersion()
		}
	}
	return versions
}

// live returns an object as it is stored.
func (w *world) live(ctx context.Context, obj *unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(obj.GroupVersionKind())
	suite.Must(w, w.Get(ctx, client.ObjectKeyFromObject(obj), live))
	return live
}

func nameOf(obj *unstructured.Unstructured) string {
	return obj.GetKind() + " " + client.ObjectKeyFromObject(obj).String()
}
