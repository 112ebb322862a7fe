package migrate

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// annotationOrigin on an imported pool, claim or IPAddress names the pool that it was imported
// from, for a rollback.
const annotationOrigin = "ipam.cadastre.dev/imported-from"

// origin holds the source of an imported object.
type origin struct {
	Pool poolRef `json:"pool"`
	// AddressName is the name of the IPAddress before the import.
	AddressName string `json:"addressName,omitempty"`
	// Asked is set if the claim asked for a certain address before the import.
	Asked bool `json:"asked,omitempty"`
}

func (o origin) text() string {
	text, err := json.Marshal(o)
	if err != nil {
		return ""
	}
	return string(text)
}

// originOf reads the origin of an object, and reports whether the object was imported.
func originOf(obj metav1.Object) (origin, bool) {
	text, ok := obj.GetAnnotations()[annotationOrigin]
	var o origin
	if !ok || json.Unmarshal([]byte(text), &o) != nil || o.Pool.Name == "" {
		return origin{}, false
	}
	return o, true
}

// side holds a claim and its IPAddress, either of which may be missing.
type side struct {
	Claim   *unstructured.Unstructured `json:"claim,omitempty"`
	Address *unstructured.Unstructured `json:"address,omitempty"`
}

// entry holds a claim and its IPAddress, and their replacement.
type entry struct {
	From side `json:"from"`
	To   side `json:"to"`
	// Deleting is set if the claim is being deleted: the replacement is deleted again.
	Deleting bool `json:"deleting,omitempty"`
}

func (e entry) object() client.Object {
	if e.From.Claim != nil {
		return e.From.Claim
	}
	return e.From.Address
}

func (e entry) String() string {
	obj := e.object()
	return obj.GetObjectKind().GroupVersionKind().Kind + " " + obj.GetNamespace() + "/" + obj.GetName()
}

// newReplacement returns the replacement of a claim and its IPAddress from another provider: the same
// from our pool.
func (p provider) newReplacement(from side, pool v1alpha1.Pool, source poolRef) entry {
	e := entry{From: from}
	was := origin{Pool: source}
	if from.Address != nil {
		was.AddressName = from.Address.GetName()
		e.To.Address = remade(from.Address, refOfPool(pool))
		swapFinalizers(e.To.Address, p.addressFinalizer, v1alpha1.FinalizerProtect)
	}
	if from.Claim != nil {
		e.Deleting = from.Claim.GetDeletionTimestamp() != nil
		e.To.Claim = remade(from.Claim, refOfPool(pool))
		swapFinalizers(e.To.Claim, p.claimFinalizer, v1alpha1.FinalizerRelease)
		p.askFor(&e, &was)
		annotate(e.To.Claim, map[string]string{annotationOrigin: was.text()})
	}
	if from.Address != nil {
		if from.Claim != nil {
			e.To.Address.SetName(from.Claim.GetName())
		}
		annotate(e.To.Address, map[string]string{annotationOrigin: was.text()})
		own(e.To.Address, pool.GetUID(), refOfPool(pool), v1alpha1.GroupVersion.String())
	}
	return e
}

// annotationMetal3Address on a claim asks Metal3's provider for a certain address.
const annotationMetal3Address = "ipAddress"

// askFor makes the claim ask for the address that it has, so that it would get the same one
// even if its IPAddress were lost; or for the address that it asks for already.
func (p provider) askFor(e *entry, was *origin) {
	claim := e.To.Claim
	_, was.Asked = claim.GetAnnotations()[v1alpha1.AnnotationAddress]
	wanted := claim.GetAnnotations()[annotationMetal3Address]
	if e.From.Address != nil {
		wanted = addressOf(e.From.Address).String()
	}
	if wanted != "" && !was.Asked {
		annotate(claim, map[string]string{v1alpha1.AnnotationAddress: canonical(wanted)})
	}
}

// back returns the replacement of an imported claim and its IPAddress: the same as before the
// import, from the pool of the other provider.
func (p provider) back(from side, was origin, pool *unstructured.Unstructured) entry {
	e := entry{From: from}
	if from.Claim != nil {
		e.Deleting = from.Claim.GetDeletionTimestamp() != nil
		e.To.Claim = remade(from.Claim, was.Pool)
		swapFinalizers(e.To.Claim, v1alpha1.FinalizerRelease, p.claimFinalizer)
		unannotate(e.To.Claim, annotationOrigin)
		if !was.Asked {
			unannotate(e.To.Claim, v1alpha1.AnnotationAddress)
		}
	}
	if from.Address != nil {
		e.To.Address = remade(from.Address, was.Pool)
		swapFinalizers(e.To.Address, v1alpha1.FinalizerProtect, p.addressFinalizer)
		unannotate(e.To.Address, annotationOrigin)
		if was.AddressName != "" {
			e.To.Address.SetName(was.AddressName)
		}
		own(e.To.Address, pool.GetUID(), was.Pool, pool.GetAPIVersion())
	}
	return e
}

// remade returns an object in the form in which it is created again, with the name of another
// pool. The owner of an IPAddress is another object then; the caller states the new owner.
func remade(obj *unstructured.Unstructured, pool poolRef) *unstructured.Unstructured {
	made := &unstructured.Unstructured{}
	made.SetAPIVersion(obj.GetAPIVersion())
	made.SetKind(obj.GetKind())
	made.SetNamespace(obj.GetNamespace())
	made.SetName(obj.GetName())
	made.SetFinalizers(slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool {
		return f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents
	}))
	made.SetLabels(obj.GetLabels())
	made.SetAnnotations(maps.Clone(obj.GetAnnotations()))
	unannotate(made, v1alpha1.AnnotationAllocation, v1alpha1.AnnotationRequester, v1alpha1.AnnotationUseGranted, v1alpha1.AnnotationRequestedBy)
	var labels = made.GetLabels()
	delete(labels, v1alpha1.LabelPool)
	delete(labels, v1alpha1.LabelPoolKind)
	made.SetLabels(labels)
	spec, _, _ := unstructured.NestedMap(obj.Object, "spec")
	if spec == nil {
		spec = map[string]any{}
	}
	spec["poolRef"] = map[string]any{"apiGroup": pool.Group, "kind": pool.Kind, "name": pool.Name}
	made.Object["spec"] = spec
	made.SetOwnerReferences(slices.DeleteFunc(slices.Clone(obj.GetOwnerReferences()), func(ref metav1.OwnerReference) bool {
		return made.GetKind() == kindAddress && (ref.Kind == kindClaim || isPoolKind(ref))
	}))
	return made
}

// isPoolKind reports whether an owner is a pool that can hand out IPAddresses.
func isPoolKind(ref metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && strings.HasPrefix(gv.Group, "ipam.") && strings.HasSuffix(ref.Kind, "IPPool")
}

// own adds a pool to the owners of an IPAddress, as the contract of Cluster API requires.
func own(address *unstructured.Unstructured, uid types.UID, pool poolRef, apiVersion string) {
	address.SetOwnerReferences(append(address.GetOwnerReferences(), metav1.OwnerReference{
		APIVersion: apiVersion, Kind: pool.Kind, Name: pool.Name, UID: uid, Controller: new(false), BlockOwnerDeletion: new(true),
	}))
}

// swapFinalizers removes one finalizer, and adds another one.
func swapFinalizers(obj *unstructured.Unstructured, off, on string) {
	kept := slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool { return f == off || f == on })
	obj.SetFinalizers(append(kept, on))
}
