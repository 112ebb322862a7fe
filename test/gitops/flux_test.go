package gitops

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/ssa"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// orders is the number of orders of applying and deleting that are tried, and waitTimeout the longest
// wait for the objects of one.
const (
	orders      = 4
	waitTimeout = time.Minute
)

// fluxSeesNoDriftOfTheOperator expects no drift after the operator has filled in certificates and
// paths of webhooks.
func (w *world) fluxSeesNoDriftOfTheOperator(t *testing.T) {
	before := w.pathsOfWebhooks()
	if len(before) == 0 {
		t.Fatal("the operator has filled in no path yet")
	}
	w.fluxSeesNoDrift(w.manifests)
	w.fluxChangesNothing(w.manifests)
	if diff := cmp.Diff(before, w.pathsOfWebhooks()); diff != "" {
		t.Errorf("paths of the webhooks (-before +after):\n%s", diff)
	}
}

// pathsOfWebhooks returns the paths and certificates of the operator's webhooks, by their names.
func (w *world) pathsOfWebhooks() map[string]string {
	w.Helper()
	paths := map[string]string{}
	for _, obj := range w.manifests {
		webhooks, _, _ := unstructured.NestedSlice(w.live(w.Context(), obj).Object, "webhooks")
		for _, webhook := range webhooks {
			fields := webhook.(map[string]any)
			path, _, _ := unstructured.NestedString(fields, "clientConfig", "service", "path")
			bundle, _, _ := unstructured.NestedString(fields, "clientConfig", "caBundle")
			if path == "" || bundle == "" {
				w.Errorf("webhook %v has the path %q and a bundle of %d bytes, want both filled in", fields["name"], path, len(bundle))
			}
			paths[fields["name"].(string)] = path + " " + bundle
		}
	}
	return paths
}

// fluxSeesNoDrift compares by dry runs.
func (w *world) fluxSeesNoDrift(objects []*unstructured.Unstructured) {
	w.Helper()
	for _, obj := range objects {
		entry, live, merged, err := w.flux.Diff(w.Context(), obj.DeepCopy(), ssa.DefaultDiffOptions())
		suite.Must(w, err)
		if entry.Action != ssa.UnchangedAction {
			w.Errorf("%s is %s (-live +applied):\n%s", nameOf(obj), entry.Action, cmp.Diff(live, merged))
		}
	}
}

// fluxChangesNothing applies once more.
func (w *world) fluxChangesNothing(objects []*unstructured.Unstructured) {
	w.Helper()
	before := w.versions(w.Context(), objects)
	changes, err := w.flux.ApplyAllStaged(w.Context(), copies(objects), ssa.DefaultApplyOptions())
	suite.Must(w, err)
	for _, entry := range changes.Entries {
		if entry.Action != ssa.UnchangedAction {
			w.Errorf("%s when applied again", entry)
		}
	}
	if diff := cmp.Diff(before, w.versions(w.Context(), objects)); diff != "" {
		w.Errorf("written to when applied again (-before +after):\n%s", diff)
	}
}

func copies(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	all := make([]*unstructured.Unstructured, len(objects))
	for i, obj := range objects {
		all[i] = obj.DeepCopy()
	}
	return all
}

// fluxInAnyOrder applies the samples one by one, waits until kstatus reports that all are current,
// and deletes them as Flux prunes.
func (w *world) fluxInAnyOrder(t *testing.T) {
	seed := suite.Seed(t, "SEED", 1)
	t.Logf("SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for range orders {
		objects := w.samples()
		for _, obj := range shuffled(objects, random) {
			entry, err := w.flux.Apply(t.Context(), obj, ssa.DefaultApplyOptions())
			suite.Must(t, err)
			if entry.Action != ssa.CreatedAction {
				t.Errorf("%s when applied at first", entry)
			}
		}
		w.current(objects)
		w.fluxSeesNoDrift(objects)
		w.fluxChangesNothing(objects)
		w.pruned(shuffled(objects, random))
	}
}

// current waits until kstatus reports all of them as current.
func (w *world) current(objects []*unstructured.Unstructured) {
	w.Helper()
	err := w.flux.Wait(objects, ssa.WaitOptions{Interval: 100 * time.Millisecond, Timeout: waitTimeout})
	if err == nil {
		return
	}
	for _, obj := range objects {
		w.Logf("%s: %v", nameOf(obj), w.live(w.Context(), obj).Object["status"])
	}
	w.Fatal(err)
}

// pruned deletes as Flux does, until nothing is left: no object, and no record. A pool that
// is in use refuses its deletion; Flux deletes the others, and tries again.
func (w *world) pruned(objects []*unstructured.Unstructured) {
	w.Helper()
	rounds := 0
	for left := objects; len(left) > 0; rounds++ {
		if rounds > len(objects) {
			w.Fatalf("still there after %d rounds: %s", rounds, nameOf(left[0]))
		}
		left = w.deleted(left)
	}
	suite.Must(w, w.flux.WaitForTermination(objects, ssa.WaitOptions{Interval: 100 * time.Millisecond, Timeout: waitTimeout}))
	w.Logf("pruned in %d rounds", rounds)
	records := &v1alpha1.IPAllocationList{}
	suite.Must(w, w.List(w.Context(), records))
	for i := range records.Items {
		w.Errorf("IPAllocation %s of %s is left", client.ObjectKeyFromObject(&records.Items[i]), records.Items[i].Spec.CIDR)
	}
}

// deleted deletes once, and returns the objects whose deletion was refused.
func (w *world) deleted(objects []*unstructured.Unstructured) (left []*unstructured.Unstructured) {
	w.Helper()
	for _, obj := range objects {
		_, err := w.flux.Delete(w.Context(), obj, ssa.DefaultDeleteOptions())
		switch {
		case err == nil:
		case apierrors.IsConflict(err) && strings.Contains(err.Error(), "is in use by"):
			left = append(left, obj)
		default:
			w.Fatalf("%s: %v", nameOf(obj), err)
		}
	}
	return left
}

// fluxAppliesWhatHasChanged expects that an edit of one object is one change, and that the
// filled-in fields stay as they are.
func (w *world) fluxAppliesWhatHasChanged(t *testing.T) {
	objects := w.samples()
	_, err := w.flux.ApplyAllStaged(t.Context(), copies(objects), ssa.DefaultApplyOptions())
	suite.Must(t, err)
	w.current(objects)
	for _, obj := range objects {
		if obj.GetKind() == "IPPool" && obj.GetName() == "corporate" {
			suite.Must(t, unstructured.SetNestedStringSlice(obj.Object, []string{"10.127.0.0/16"}, "spec", "reserved"))
		}
	}
	changes, err := w.flux.ApplyAllStaged(t.Context(), copies(objects), ssa.DefaultApplyOptions())
	suite.Must(t, err)
	changed := map[string]ssa.Action{}
	for _, entry := range changes.Entries {
		if entry.Action != ssa.UnchangedAction {
			changed[entry.Subject] = entry.Action
		}
	}
	if diff := cmp.Diff(map[string]ssa.Action{"IPPool/corporate": ssa.ConfiguredAction}, changed); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	w.current(objects)
	w.fluxSeesNoDrift(objects)
	w.pruned(shuffled(objects, rand.New(rand.NewPCG(1, 1))))
}
