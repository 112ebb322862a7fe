package security

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// TestFilledInFieldsAreKeptWithoutReplica replaces a claim by the manifest from which it was
// created, and by ones without status and with another. While no replica runs all are refused; with
// config/policy/mutating, the status and the fields that the manifest leaves out are kept.
func TestFilledInFieldsAreKeptWithoutReplica(t *testing.T) {
	w := &world{suite.Start(t, cluster.Options{Managers: 1})}
	w.Namespace("team")
	w.Pools(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	claim := build.Claim("team", "kept").Pool("p").Length(28).Obj()
	w.Created(claim)
	suite.Must(t, w.Managers[0].Stop())

	if _, err := w.replace("refused", map[string]any{"poolRef": map[string]any{"name": "p"}, "prefixLength": 28}, nil); err == nil || !strings.Contains(err.Error(), "spec.cidr: Forbidden") {
		t.Errorf("the block was left out: %v", err)
	}
	_, err := w.replace("refused", claim.Spec, nil)
	if err == nil || !strings.Contains(err.Error(), "status: is written by the operator alone") {
		t.Errorf("the status was left out: %v", err)
	}
	if _, err := w.replace("refused", claim.Spec, map[string]any{"phase": "Pending"}); err == nil || !strings.Contains(err.Error(), "status: is written by the operator alone") {
		t.Errorf("the status differs: %v", err)
	}
	w.edit("a label", claim, `{"metadata":{"labels":{"edited":"yes"}}}`)
	w.edit("foreign finalizer", claim, `{"metadata":{"finalizers":["example.com/theirs"]}}`)
	w.edit("that finalizer off", claim, `{"metadata":{"finalizers":null}}`)

	root := suite.ModuleRoot(t)
	if _, err := w.Kubectl(t.Context(), "apply", "--kustomize", filepath.Join(root, "config", "policy", "mutating")); err != nil {
		t.Fatal(err)
	}
	w.Await("the policy is in force", func(context.Context) bool {
		_, err = w.replace("kept", map[string]any{"poolRef": map[string]any{"name": "p"}, "prefixLength": 28}, nil)
		return err == nil
	})
	after := &v1alpha1.IPClaim{}
	suite.Must(t, w.Get(t.Context(), client.ObjectKeyFromObject(claim), after))
	if diff := cmp.Diff(claim.Status, after.Status); diff != "" || after.Labels["replaced"] != "kept" {
		t.Errorf("replaced: %v; the status changed: %s", after.Labels, diff)
	}
	if diff := cmp.Diff(claim.Spec, after.Spec); diff != "" {
		t.Errorf("the spec changed: %s", diff)
	}
	for name, status := range map[string]map[string]any{
		"another status": {"phase": "Pending"}, "a part of the status": {"phase": "Bound"},
	} {
		if out, err := w.replace("kept", claim.Spec, status); err != nil {
			t.Errorf("with %s it was refused: %v: %s", name, err, out)
		}
	}
	again := &v1alpha1.IPClaim{}
	suite.Must(t, w.Get(t.Context(), client.ObjectKeyFromObject(claim), again))
	if diff := cmp.Diff(after.Status, again.Status); diff != "" {
		t.Errorf("the status changed: %s", diff)
	}
	other := build.Claim("team", "other").Pool("p").Length(28).Obj()
	if err := w.Create(t.Context(), other); err == nil || apierrors.IsInvalid(err) {
		t.Errorf("a claim was created while no replica runs: %v", err)
	}
	w.nobodyForgesAnAnswer(claim.Status)
}

// nobodyForgesAnAnswer creates claims with the mark and the status of an answer while no
// replica runs.
func (w *world) nobodyForgesAnAnswer(status v1alpha1.IPClaimStatus) {
	w.Helper()
	forged := build.Claim("team", "forged").Pool("p").Length(28).Obj()
	forged.APIVersion, forged.Kind = v1alpha1.GroupVersion.String(), "IPClaim"
	forged.UID, forged.Status = "answered", status
	text, err := json.Marshal(forged)
	suite.Must(w, err)
	if err := w.Create(w.Context(), forged.DeepCopy()); err == nil || !strings.Contains(err.Error(), `failed calling webhook "retry.ipclaim.ipam.cadastre.dev"`) {
		w.Errorf("created: %v", err)
	}
	err = w.Patch(w.Context(), forged.DeepCopy(), client.RawPatch(types.ApplyPatchType, text), client.FieldOwner("tenant"))
	if err == nil || !strings.Contains(err.Error(), "uid mismatch") {
		w.Errorf("applied: %v", err)
	}
	if err := w.Get(w.Context(), client.ObjectKeyFromObject(forged), forged); !apierrors.IsNotFound(err) {
		w.Errorf("it exists: %v", err)
	}
}

// replace replaces the claim, with kubectl, by one with a label, a spec and a status.
func (w *world) replace(label string, spec any, status map[string]any) (string, error) {
	w.Helper()
	manifest := map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "IPClaim",
		"metadata": map[string]any{"name": "kept", "namespace": "team", "labels": map[string]any{"replaced": label}},
		"spec":     spec,
	}
	if status != nil {
		manifest["status"] = status
	}
	text, err := yaml.Marshal(manifest)
	suite.Must(w, err)
	file := filepath.Join(w.TempDir(), "claim.yaml")
	suite.Must(w, os.WriteFile(file, text, 0o600))
	return w.Kubectl(w.Context(), "replace", "--filename", file)
}

// unclaimedLimit is the highest number of records of a namespace without a claim or a pool.
const unclaimedLimit = 10

// unboundIsBounded sends claims of a namespace that another policy refuses when each has its block
// already: the namespace is stopped before it has taken all blocks, and no other namespace is.
func (w *world) unboundIsBounded() {
	w.Namespace("greedy")
	w.Namespace("modest")
	w.Pools(build.Pool("bounded").CIDR("10.10.0.0/20").Obj())
	greedy := w.Client(cluster.NoRetry(w.Config()))
	refused := func(name string) *v1alpha1.IPClaim {
		claim := build.Claim("greedy", name).Pool("bounded").Length(28).Obj()
		claim.Labels = map[string]string{"refuse": "me"}
		return claim
	}
	policy, binding := build.Refusal("refuse-labeled", "refuse", "")
	w.Created(policy, binding)
	w.Await("the policy is in force", func(ctx context.Context) bool {
		err := greedy.Create(ctx, refused("rehearsed"), client.DryRunAll)
		return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "refuse-labeled")
	})

	var err error
	made := 0
	for ; made <= 10*unclaimedLimit && !apierrors.IsTooManyRequests(err); made++ {
		if err = greedy.Create(w.Context(), refused(fmt.Sprint("refused-", made))); err == nil {
			w.Fatal("the policy lets it pass")
		}
	}
	if made <= unclaimedLimit || !apierrors.IsTooManyRequests(err) {
		w.Errorf("after %d claims that were not stored: %v, want that it is too many, after more than %d", made, err, unclaimedLimit)
	}
	modest := build.Claim("modest", "served").Pool("bounded").Length(28).Obj()
	w.Created(modest)
	if modest.Spec.CIDR == "" {
		w.Error("another namespace is not served in that time")
	}
	w.Await("the namespace is served again, as its records are collected", func(ctx context.Context) bool {
		claim := build.Claim("greedy", "served").Pool("bounded").Length(28).Obj()
		return greedy.Create(ctx, claim) == nil && claim.Spec.CIDR != ""
	})
}
