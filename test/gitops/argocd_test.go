package gitops

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/diff"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/tracing"
	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// argoManager is the field manager of Argo CD.
const argoManager = "argocd-controller"

// argoSeesNoDifference applies by each of Argo CD's ways, and compares by each of its ways.
func (w *world) argoSeesNoDifference(t *testing.T) {
	ctl := &kube.KubectlCmd{Log: logr.Discard(), Tracer: tracing.NopTracer{}}
	operations, done, err := ctl.ManageResources(w.Config())
	suite.Must(t, err)
	t.Cleanup(done)
	dryRuns, done, err := ctl.ManageServerSideDiffDryRuns(w.Config())
	suite.Must(t, err)
	t.Cleanup(done)
	_, parser, err := ctl.LoadOpenAPISchema(w.Config())
	suite.Must(t, err)
	random := rand.New(rand.NewPCG(suite.Seed(t, "SEED", 1), 2))
	for way, serverSide := range map[string]bool{"applied by the client": false, "applied by the server": true} {
		t.Run(way, func(t *testing.T) {
			w := &world{World: w.For(t), flux: w.flux, manifests: w.manifests}
			objects := w.samples()
			apply := func() {
				for _, obj := range shuffled(objects, random) {
					_, err := operations.ApplyResource(t.Context(), obj, cmdutil.DryRunNone, false, true, serverSide, argoManager)
					suite.Must(t, err)
				}
			}
			apply()
			w.current(objects)
			for name, options := range map[string][]diff.Option{
				"three ways":             nil,
				"structured merge":       {diff.WithStructuredMergeDiff(true), diff.WithGVKParser(parser), diff.WithManager(argoManager)},
				"dry runs by the server": {diff.WithServerSideDiff(true), diff.WithServerSideDryRunner(diff.NewK8sServerSideDryRunner(dryRuns)), diff.WithGVKParser(parser), diff.WithManager(argoManager)},
			} {
				w.argoSeesNone(t.Context(), name, objects, options)
				w.argoSeesNone(t.Context(), name, w.manifests, options)
				w.argoSeesTheDifference(t.Context(), name, options)
			}
			before := w.versions(t.Context(), objects)
			apply()
			if diff := cmp.Diff(before, w.versions(t.Context(), objects)); diff != "" {
				t.Errorf("written to when applied again (-before +after):\n%s", diff)
			}
			w.pruned(shuffled(objects, random))
		})
	}
}

// argoSeesTheDifference compares a pool of which a field was edited.
func (w *world) argoSeesTheDifference(ctx context.Context, way string, options []diff.Option) {
	w.Helper()
	for _, obj := range w.samples() {
		if obj.GetKind() != "IPPool" || obj.GetName() != "corporate" {
			continue
		}
		suite.Must(w, unstructured.SetNestedStringSlice(obj.Object, []string{"10.127.0.0/16"}, "spec", "reserved"))
		result, err := diff.Diff(obj, w.live(ctx, obj), append(options, diff.WithLogr(logr.Discard()))...)
		suite.Must(w, err)
		if !result.Modified {
			w.Errorf("%s: an edited pool is in sync", way)
		}
	}
}

// argoSeesNone compares all objects as Argo CD does before it reports that they are in sync.
func (w *world) argoSeesNone(ctx context.Context, way string, objects []*unstructured.Unstructured, options []diff.Option) {
	w.Helper()
	options = append(options, diff.WithLogr(logr.Discard()), diff.IgnoreAggregatedRoles(true))
	for _, obj := range objects {
		result, err := diff.Diff(obj.DeepCopy(), w.live(ctx, obj), options...)
		suite.Must(w, err)
		if result.Modified {
			w.Errorf("%s: %s is out of sync (-live +predicted):\n%s", way, nameOf(obj), cmp.Diff(string(result.NormalizedLive), string(result.PredictedLive)))
		}
	}
}
