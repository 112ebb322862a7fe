package security

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// broken returns an object of each kind whose spec is invalid.
func broken() map[string]string {
	return map[string]string{
		"IPPool":       `{"cidr":"10.256.0.0/8","ranges":["here-there"],"ipFamily":"IPv5","parentRef":{"kind":"IPPool","name":"broken"}}`,
		"LocalIPPool":  `{"cidr":"10.256.0.0/8","ranges":["here-there"],"ipFamily":"IPv5","parentRef":{"kind":"LocalIPPool","name":"broken"}}`,
		"IPClass":      `{"ipFamily":"IPv5","defaultPrefixLength":500,"provisioner":"ipam.cadastre.dev/native"}`,
		"IPClaim":      `{"cidr":"nonsense","className":"a","poolRef":{"kind":"IPPool","name":"b"},"allocationName":"nothing","prefixLength":-7}`,
		"IPAllocation": `{"cidr":"nonsense","ipFamily":"IPv4","claimRef":{"apiGroup":"","kind":"","name":""},"purpose":"Theft"}`,
	}
}

// everythingIsEditable stores invalid objects, as an older version of the API may have, and edits
// them when everything is in force again.
func (w *world) everythingIsEditable() {
	objs := w.storeBroken()
	suite.Must(w, w.Reinstall(w.Context()))
	w.Await("webhooks and rules are in force", func(ctx context.Context) bool {
		bad := w.Create(ctx, build.Pool("").CIDR("10.9.0.1/24").Obj(), client.DryRunAll)
		good := w.Create(ctx, build.Claim("all", "").Generated("probe-").Pool("all-root").Length(32).Obj(), client.DryRunAll)
		return bad != nil && good == nil
	})
	for kind, obj := range objs {
		w.edit(kind+": a label", obj, `{"metadata":{"labels":{"edited":"yes"}}}`)
		w.edit(kind+": an annotation", obj, `{"metadata":{"annotations":{"example.com/edited":"yes"}}}`)
		w.edit(kind+": foreign finalizer", obj, `{"metadata":{"finalizers":["example.com/theirs"]}}`)
		suite.Must(w, w.Delete(w.Context(), obj))
		w.edit(kind+": that finalizer off, when it is being deleted", obj, `{"metadata":{"finalizers":null}}`)
		w.Gone(obj)
	}
}

func (w *world) edit(what string, obj client.Object, patch string) {
	w.Helper()
	err := w.Patch(w.Context(), obj.DeepCopyObject().(client.Object), build.Merge(patch))
	if err != nil {
		w.Errorf("%s: %v", what, err)
	}
}

// storeBroken removes the webhooks and the rules, and stores the objects.
func (w *world) storeBroken() map[string]*unstructured.Unstructured {
	w.Helper()
	ctx := w.Context()
	w.Deleted(
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "zz-cadastre-mutating-webhook-configuration"}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cadastre-validating-webhook-configuration"}})
	kinds := &apiextensionsv1.CustomResourceDefinitionList{}
	suite.Must(w, w.List(ctx, kinds))
	anything := true
	for i := range kinds.Items {
		if kinds.Items[i].Spec.Group != v1alpha1.GroupVersion.Group {
			continue
		}
		kinds.Items[i].Spec.Versions[0].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &anything}
		kinds.Items[i].Spec.Versions[0].SelectableFields = nil
		suite.Must(w, w.Update(ctx, &kinds.Items[i]))
	}
	asOperator, err := w.OperatorConfig(ctx) // which alone makes records
	suite.Must(w, err)
	operator := w.Client(asOperator)
	objs := map[string]*unstructured.Unstructured{}
	for kind, spec := range broken() {
		obj := &unstructured.Unstructured{}
		suite.Must(w, obj.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":"broken"},"spec":%s}`, v1alpha1.GroupVersion, kind, spec)))
		creator := client.Client(w)
		if kind == "IPClaim" || kind == "IPAllocation" || kind == "LocalIPPool" {
			obj.SetNamespace("all")
		}
		if kind == "IPAllocation" {
			creator = operator
		}
		w.Await(kind+" is stored", func(ctx context.Context) bool {
			return creator.Create(ctx, obj.DeepCopy()) == nil
		})
		objs[kind] = obj
	}
	return objs
}

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
