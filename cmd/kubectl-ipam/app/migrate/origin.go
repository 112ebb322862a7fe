package migrate

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// annotationOrigin on an imported object names the pool that it was imported from.
const annotationOrigin = "ipam.cadastre.dev/imported-from"

// origin holds the source of an imported object.
type origin struct {
	// Pool is the name of Metal3's pool.
	Pool string `json:"pool"`
	// AddressName is the name of the IPAddress before the import.
	AddressName string `json:"addressName,omitempty"`
	// Asked is set if the claim asked for a certain address before the import.
	Asked bool `json:"asked,omitempty"`
}

func (o origin) text() string {
	text, _ := json.Marshal(o) // it has texts only
	return string(text)
}

// originOf reads the origin of an object, and reports whether the object was imported.
func originOf(obj metav1.Object) (origin, bool) {
	text, ok := obj.GetAnnotations()[annotationOrigin]
	var o origin
	if !ok || json.Unmarshal([]byte(text), &o) != nil || o.Pool == "" {
		return origin{}, false
	}
	return o, true
}

// side holds a claim and its IPAddress, either of which may be missing.
type side struct {
	Claim   *unstructured.Unstructured `json:"claim,omitempty"`
	Address *unstructured.Unstructured `json:"address,omitempty"`
}

func (s side) object() *unstructured.Unstructured {
	if s.Claim != nil {
		return s.Claim
	}
	return s.Address
}

// entry holds a claim and its IPAddress, and their replacement.
type entry struct {
	From side `json:"from"`
	To   side `json:"to"`
	// Deleting is set if the claim is being deleted: the replacement is deleted again.
	Deleting bool `json:"deleting,omitempty"`
}

func (e entry) String() string {
	return e.From.object().GetKind() + " " + keyOf(e.From.object()).String()
}

// newReplacement returns the replacement of a claim and its IPAddress: the same from our pool.
func newReplacement(from side, pool *v1alpha1.LocalIPPool, source string) entry {
	e := replacement(from, refOfPool(pool), metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), UID: pool.GetUID()})
	was := origin{Pool: source}
	if from.Address != nil {
		was.AddressName = from.Address.GetName()
		swapFinalizers(e.To.Address, addressFinalizer, v1alpha1.FinalizerProtect)
	}
	if from.Claim != nil {
		swapFinalizers(e.To.Claim, claimFinalizer, v1alpha1.FinalizerRelease)
		_, was.Asked = from.Claim.GetAnnotations()[v1alpha1.AnnotationAddress]
		if wanted := wantedAddress(from); wanted != "" && !was.Asked {
			annotate(e.To.Claim, map[string]string{v1alpha1.AnnotationAddress: canonical(wanted)})
		}
		annotate(e.To.Claim, map[string]string{annotationOrigin: was.text()})
	}
	if from.Address != nil {
		e.To.Address.SetName(from.object().GetName())
		annotate(e.To.Address, map[string]string{annotationOrigin: was.text()})
	}
	return e
}

// annotationMetal3Address on a claim asks Metal3's provider for a certain address.
const annotationMetal3Address = "ipAddress"

// wantedAddress returns the address that a claim has, so that it would get the same one even if
// its IPAddress were lost; or else the address that it asks for.
func wantedAddress(from side) string {
	if from.Address != nil {
		return addressOf(from.Address).String()
	}
	return from.Claim.GetAnnotations()[annotationMetal3Address]
}

// back returns the replacement of an imported claim and its IPAddress: as before the import.
func back(from side, was origin, pool *unstructured.Unstructured) entry {
	e := replacement(from, refOfSource(pool.GetNamespace(), pool.GetName()), metav1.OwnerReference{APIVersion: pool.GetAPIVersion(), UID: pool.GetUID()})
	if from.Claim != nil {
		swapFinalizers(e.To.Claim, v1alpha1.FinalizerRelease, claimFinalizer)
		unannotate(e.To.Claim, annotationOrigin)
		if !was.Asked {
			unannotate(e.To.Claim, v1alpha1.AnnotationAddress)
		}
	}
	if from.Address != nil {
		swapFinalizers(e.To.Address, v1alpha1.FinalizerProtect, addressFinalizer)
		unannotate(e.To.Address, annotationOrigin)
		e.To.Address.SetName(cmp.Or(was.AddressName, from.Address.GetName()))
	}
	return e
}

// replacement returns a claim and its IPAddress as they are created again, from another pool. That owns
// the IPAddress, as the contract of Cluster API requires.
func replacement(from side, pool ipam.Holder, owner metav1.OwnerReference) entry {
	e := entry{From: from}
	if from.Claim != nil {
		e.To.Claim, e.Deleting = remade(from.Claim, pool), from.Claim.GetDeletionTimestamp() != nil
	}
	if from.Address != nil {
		owner.Kind, owner.Name, owner.Controller, owner.BlockOwnerDeletion = pool.Kind, pool.Name, new(false), new(true)
		e.To.Address = remade(from.Address, pool)
		e.To.Address.SetOwnerReferences(append(e.To.Address.GetOwnerReferences(), owner))
	}
	return e
}

// remade returns an object in the form in which it is created again, with the name of another
// pool. The owner of an IPAddress is another object then; the caller states the new owner.
func remade(obj *unstructured.Unstructured, pool ipam.Holder) *unstructured.Unstructured {
	made := &unstructured.Unstructured{}
	made.SetGroupVersionKind(obj.GroupVersionKind())
	made.SetNamespace(obj.GetNamespace())
	made.SetName(obj.GetName())
	made.SetFinalizers(slices.DeleteFunc(obj.GetFinalizers(), func(f string) bool {
		return f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents
	}))
	labels := obj.GetLabels()
	maps.DeleteFunc(labels, func(key, _ string) bool { return key == v1alpha1.LabelPool || key == v1alpha1.LabelPoolKind })
	made.SetLabels(labels)
	made.SetAnnotations(obj.GetAnnotations())
	unannotate(made, v1alpha1.AnnotationAllocation, v1alpha1.AnnotationRequester, v1alpha1.AnnotationUseGranted, v1alpha1.AnnotationRequestedBy)
	spec, _, _ := unstructured.NestedMap(obj.Object, "spec")
	if spec == nil {
		spec = map[string]any{}
	}
	spec["poolRef"] = map[string]any{"apiGroup": pool.Group, "kind": pool.Kind, "name": pool.Name}
	made.Object["spec"] = spec
	made.SetOwnerReferences(slices.DeleteFunc(obj.GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
		return made.GetKind() == kindAddress && (owner.Kind == kindClaim || isPool(owner))
	}))
	return made
}

// isPool reports whether an owner is a pool that can hand out IPAddresses.
func isPool(owner metav1.OwnerReference) bool {
	return strings.HasPrefix(owner.APIVersion, "ipam.") && strings.HasSuffix(owner.Kind, "IPPool")
}

// swapFinalizers removes one finalizer, and adds another one.
func swapFinalizers(obj *unstructured.Unstructured, off, on string) {
	controllerutil.RemoveFinalizer(obj, off)
	controllerutil.AddFinalizer(obj, on)
}
