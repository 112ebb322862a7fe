package security

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// editsGrantNothing has a cluster administrator, who can use every pool, edit the labels, owners
// and finalizers of waiting objects in each way that the API server offers, as a controller with
// many rights does.
func (w *world) editsGrantNothing(waiting ...*late) {
	w.Helper()
	for _, l := range waiting {
		owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.claim.Namespace, Name: "owner"}}
		w.Created(owner)
		reference := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}
		for _, obj := range l.all() {
			w.editInEachWay(obj, reference)
		}
	}
	asked := build.Claim("late-people", "of-the-administrator").Pool("late-owned").Length(32).Obj()
	w.Created(asked)
	w.Bound(asked)
	w.Deleted(asked)
	for _, l := range waiting {
		l.isNotServed()
	}
}

// editInEachWay edits an object by each kind of patch, PUT and server-side apply, and takes the
// edits back.
func (w *world) editInEachWay(obj client.Object, owner metav1.OwnerReference) {
	w.Helper()
	ctx, finalizers := w.Context(), obj.GetFinalizers()
	raw := func(kind types.PatchType, value any, options ...client.PatchOption) error {
		text, err := json.Marshal(value)
		suite.Must(w, err)
		return w.Patch(ctx, obj, client.RawPatch(kind, text), options...)
	}
	edited := func(how string) map[string]any {
		return map[string]any{
			"labels": map[string]string{"edited": how}, "ownerReferences": []metav1.OwnerReference{owner},
			"finalizers": append(slices.Clone(finalizers), "example.com/"+how),
		}
	}
	for how, edit := range map[string]func() error{
		"merge": func() error { return raw(types.MergePatchType, map[string]any{"metadata": edited("merge")}) },
		"json": func() error {
			var operations []map[string]any
			for field, value := range edited("json") {
				operations = append(operations, map[string]any{"op": "add", "path": "/metadata/" + field, "value": value})
			}
			return raw(types.JSONPatchType, operations)
		},
		"put": func() error {
			suite.Must(w, w.Get(ctx, client.ObjectKeyFromObject(obj), obj))
			obj.SetLabels(map[string]string{"edited": "put"})
			obj.SetOwnerReferences([]metav1.OwnerReference{owner})
			obj.SetFinalizers(append(slices.Clone(finalizers), "example.com/put"))
			return w.Update(ctx, obj)
		},
		"apply": func() error {
			kind, err := w.GroupVersionKindFor(obj)
			suite.Must(w, err)
			metadata := edited("apply")
			metadata["namespace"], metadata["name"] = obj.GetNamespace(), obj.GetName()
			return raw(types.ApplyPatchType, map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind, "metadata": metadata},
				client.FieldOwner("administrator"), client.ForceOwnership)
		},
	} {
		if err := retry.RetryOnConflict(retry.DefaultRetry, edit); err != nil {
			w.Errorf("%T by %s: %v", obj, how, err)
		}
		if obj.GetLabels()["edited"] != how || len(obj.GetOwnerReferences()) == 0 || !slices.ContainsFunc(obj.GetFinalizers(), func(f string) bool { return strings.HasSuffix(f, "/"+how) }) {
			w.Errorf("%T was not edited by %s: %+v", obj, how, obj.GetLabels())
		}
	}
	strategic := raw(types.StrategicMergePatchType, map[string]any{"metadata": edited("strategic")})
	if !apierrors.IsUnsupportedMediaType(strategic) {
		w.Errorf("%T by a strategic merge patch, which custom resources do not have: %v", obj, strategic)
	}
	suite.Must(w, raw(types.MergePatchType, map[string]any{"metadata": map[string]any{"labels": nil, "ownerReferences": nil, "finalizers": finalizers}}))
}
