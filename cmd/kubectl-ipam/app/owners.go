package app

import (
	"context"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// maxOwners is how many owners above an object are looked for.
const maxOwners = 10

// ObjectRef names an object of any kind.
type ObjectRef struct {
	APIGroup  string `json:"apiGroup,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`

	// version of its API; empty where a person has named the object, and it is not read.
	version string
}

// String is the kind and the name.
func (r ObjectRef) String() string { return r.Kind + " " + r.name() }

func (r ObjectRef) name() string {
	if r.Namespace == "" {
		return r.Name
	}
	return r.Namespace + "/" + r.Name
}

func (r ObjectRef) isMachine() bool {
	return r.APIGroup == clusterv1.GroupVersion.Group && r.Kind == "Machine"
}

func refOfHolder(h ipam.Holder) ObjectRef {
	version := v1alpha1.GroupVersion.Version
	if h.Group == adapt.AddressClaimGroup {
		version = ipamv1.GroupVersion.Version
	}
	return ObjectRef{APIGroup: h.Group, Kind: h.Kind, Namespace: h.Namespace, Name: h.Name, version: version}
}

func refOfPool(key ipam.PoolKey) ObjectRef { return refOfHolder(adapt.HolderOfPool(key)) }

// owners finds who owns an object, and who owns that, with the rights of the caller. An
// object is read once.
type owners struct {
	client client.Client
	read   map[ObjectRef][]ObjectRef
	// unread is why an object of a kind could not be read, by kind.
	unread map[string]error
}

func newOwners(c client.Client) *owners {
	return &owners{client: c, read: map[ObjectRef][]ObjectRef{}, unread: map[string]error{}}
}

// above are the owners of an object, the nearest first: the controller of each where it has
// one, else its first owner. An owner that may not be read is the last one.
func (o *owners) above(ctx context.Context, object ObjectRef) []ObjectRef {
	var above []ObjectRef
	seen := map[ObjectRef]bool{object: true}
	for len(above) < maxOwners {
		owners := o.of(ctx, object)
		if len(owners) == 0 || seen[owners[0]] {
			break
		}
		object = owners[0]
		seen[object] = true
		above = append(above, object)
	}
	return above
}

// of are the owners of an object, its controller first.
func (o *owners) of(ctx context.Context, object ObjectRef) []ObjectRef {
	if owners, known := o.read[object]; known || object.version == "" {
		return owners
	}
	owners, err := o.get(ctx, object)
	o.read[object] = owners
	if err != nil && !apierrors.IsNotFound(err) && o.unread[object.Kind] == nil {
		o.unread[object.Kind] = err
	}
	return owners
}

func (o *owners) get(ctx context.Context, object ObjectRef) ([]ObjectRef, error) {
	key := client.ObjectKey{Namespace: object.Namespace, Name: object.Name}
	if object.APIGroup == v1alpha1.GroupVersion.Group && object.Kind == "IPClaim" {
		claim := &v1alpha1.IPClaim{}
		err := o.client.Get(ctx, key, claim)
		return ownersOfClaim(claim), err
	}
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(schema.GroupVersionKind{Group: object.APIGroup, Version: object.version, Kind: object.Kind})
	err := o.client.Get(ctx, key, found)
	return ownersOf(found), err
}

// ownersOf are those that an object names, its controller first.
func ownersOf(object client.Object) []ObjectRef {
	var owners []ObjectRef
	for _, reference := range object.GetOwnerReferences() {
		group, err := schema.ParseGroupVersion(reference.APIVersion)
		if err != nil {
			continue
		}
		owner := ObjectRef{APIGroup: group.Group, Kind: reference.Kind, Namespace: object.GetNamespace(), Name: reference.Name, version: group.Version}
		if reference.Controller != nil && *reference.Controller {
			owners = append([]ObjectRef{owner}, owners...)
			continue
		}
		owners = append(owners, owner)
	}
	return owners
}

// ownersOfClaim are those that a claim names as any object does, and else the user of the
// block that its spec names.
func ownersOfClaim(claim *v1alpha1.IPClaim) []ObjectRef {
	if owners := ownersOf(claim); len(owners) > 0 || claim.Spec.OwnerRef == nil {
		return owners
	}
	owner := claim.Spec.OwnerRef
	return []ObjectRef{{APIGroup: owner.APIGroup, Kind: owner.Kind, Namespace: claim.Namespace, Name: owner.Name}}
}

// explain says what could not be read.
func (o *owners) explain(e *env) {
	for _, kind := range slices.Sorted(maps.Keys(o.unread)) {
		err := o.unread[kind]
		switch {
		case meta.IsNoMatchError(err):
		case apierrors.IsForbidden(err):
			e.note("you may not get every %s, so owners above them may be missing here: ask for the right to get them", kind)
		default:
			e.note("an object of kind %s could not be read, so owners above it are missing here: %v", kind, err)
		}
	}
}

// userOf is the owner that a person looks for: the Machine, or else the nearest one.
func userOf(above []ObjectRef) string {
	for _, owner := range above {
		if owner.isMachine() {
			return owner.inNamespace()
		}
	}
	if len(above) == 0 {
		return ""
	}
	return above[0].inNamespace()
}

// inNamespace is the kind and the name beside an object of the same namespace.
func (r ObjectRef) inNamespace() string { return r.Kind + " " + r.Name }
