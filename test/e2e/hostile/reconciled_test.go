package hostile

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// reconciled waits until the status of every stored object is about its present spec.
func reconciled(t *testing.T, admin client.Client) {
	t.Helper()
	behind, stored := []string{}, map[string]int{}
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, 60*time.Second, true, func(ctx context.Context) (bool, error) {
		behind = behind[:0]
		for _, kind := range reconciledKinds() {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
			if err := admin.List(ctx, list); err != nil {
				return false, err
			}
			stored[kind.Kind] = len(list.Items)
			for _, obj := range list.Items {
				if isBehind(obj) {
					behind = append(behind, kind.Kind+" "+obj.GetName())
				}
			}
		}
		return len(behind) == 0, nil
	})
	t.Logf("stored: %v", stored)
	if err != nil {
		t.Errorf("%d objects are not reconciled (%v): %s", len(behind), err, strings.Join(behind[:min(20, len(behind))], ", "))
	}
}

func reconciledKinds() []schema.GroupVersionKind {
	kinds := []schema.GroupVersionKind{ipamv1.GroupVersion.WithKind("IPAddressClaim")}
	for _, kind := range []string{"IPPool", "LocalIPPool", "IPClass", "IPClaim"} {
		kinds = append(kinds, v1alpha1.GroupVersion.WithKind(kind))
	}
	return kinds
}

// isBehind reports whether the status of an object is not about its present spec. That of an
// IPAddressClaim has the generation in its condition; one that names neither a pool nor a class of
// ours is not our concern. An IPClaim has its status from the beginning, and no generation.
func isBehind(obj unstructured.Unstructured) bool {
	switch obj.GetKind() {
	case "IPAddressClaim":
	case "IPClaim":
		conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
		phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
		return phase == "" || len(conditions) != 4
	default:
		seen, _, _ := unstructured.NestedInt64(obj.Object, "status", "observedGeneration")
		return seen != obj.GetGeneration()
	}
	claim := &ipamv1.IPAddressClaim{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, claim); err != nil {
		return true
	}
	if ref := claim.Spec.PoolRef; ref.APIGroup != v1alpha1.GroupVersion.Group || !slices.Contains([]string{"IPPool", "LocalIPPool", "IPClass"}, ref.Kind) {
		return false
	}
	ready := meta.FindStatusCondition(claim.Status.Conditions, ipamv1.IPAddressClaimReadyCondition)
	return ready == nil || ready.ObservedGeneration != claim.Generation
}
