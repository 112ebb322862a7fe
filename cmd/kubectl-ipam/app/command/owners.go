package command

import (
	"context"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// MaxOwners limits the owners above an object that are looked up.
const MaxOwners = 10

// ObjectRef represents a reference to an object of any kind.
type ObjectRef struct {
	APIGroup  string `json:"apiGroup,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`

	// Version is the version of its API; empty if a person has named the object. It is not read
	// then.
	Version string `json:"-"`
}

// String returns the kind and the name.
func (r ObjectRef) String() string { return r.Kind + " " + r.FullName() }

// FullName returns the name with its namespace, if it has one.
func (r ObjectRef) FullName() string {
	if r.Namespace == "" {
		return r.Name
	}
	return r.Namespace + "/" + r.Name
}

// Argument returns the object as an argument of kubectl, such as ippool/nodes.
func (r ObjectRef) Argument() string { return strings.ToLower(r.Kind) + "/" + r.Name }

// IsMachine reports whether the object is a Machine of Cluster API.
func (r ObjectRef) IsMachine() bool {
	return r.APIGroup == clusterv1.GroupVersion.Group && r.Kind == "Machine"
}

// RefOfHolder returns the reference to the holder of a block.
func RefOfHolder(h ipam.Holder) ObjectRef {
	version := v1alpha1.GroupVersion.Version
	if h.Group == convert.AddressClaimGroup {
		version = ipamv1.GroupVersion.Version
	}
	return ObjectRef{APIGroup: h.Group, Kind: h.Kind, Namespace: h.Namespace, Name: h.Name, Version: version}
}

// RefOfPool returns the reference to a pool.
func RefOfPool(key ipam.PoolKey) ObjectRef {
	ref := RefOfHolder(convert.HolderOfPool(key))
	if key.Kind.IsInCluster() {
		ref.Version = incluster.GroupVersion.Version
	}
	return ref
}

// PoolName returns the name of a pool in tables: with its kind for one of the in-cluster provider's kinds.
func (r ObjectRef) PoolName() string {
	if ipam.PoolKind(r.Kind).IsInCluster() {
		return r.String()
	}
	return r.FullName()
}

// ClusterNetwork represents the network of a Cluster of Cluster API that has the block of a claim, or
// another cluster that has a pool with it.
type ClusterNetwork struct {
	// Cluster is the name of the Cluster, in the namespace of the claim, or of the other cluster.
	Cluster string `json:"cluster"`
	// Purpose is pods, services, control-plane-endpoint, or variable. and the name of a topology
	// variable; or class and the name of a class of the other cluster.
	Purpose string `json:"purpose"`
}

// NetworkOf returns the network of a Cluster, or the class of another cluster, that has the block of a
// claim; nil for the claims of others.
func NetworkOf(claim metav1.Object) *ClusterNetwork {
	if labels := claim.GetLabels(); labels[v1alpha1.LabelHubCluster] != "" {
		return &ClusterNetwork{Cluster: labels[v1alpha1.LabelHubCluster], Purpose: strings.TrimSpace("class " + labels[v1alpha1.LabelHubClass])}
	}
	n := &ClusterNetwork{Cluster: convert.ClusterOfClaim(claim), Purpose: string(convert.PurposeOfClaim(claim))}
	if n.Cluster == "" || n.Purpose == "" {
		return nil
	}
	return n
}

// String returns the network in words; it is empty for nil.
func (n *ClusterNetwork) String() string {
	if n == nil {
		return ""
	}
	return n.Purpose + " of Cluster " + n.Cluster
}

// Owners holds the owners of objects. It finds the owners of an object, and their owners, with
// the rights of the caller, and reads an object once.
type Owners struct {
	client client.Client
	Read   map[ObjectRef][]ObjectRef
	// Networks holds the networks that have the blocks of the IPClaims that were read.
	Networks map[ObjectRef]*ClusterNetwork
	// unread holds the reason why an object of a kind could not be read, by kind.
	unread map[string]error
}

// NewOwners returns owners that are read by a client.
func NewOwners(c client.Client) *Owners {
	return &Owners{client: c, Read: map[ObjectRef][]ObjectRef{}, Networks: map[ObjectRef]*ClusterNetwork{}, unread: map[string]error{}}
}

// Above returns the owners of an object, the nearest first: the controller of each if it has one,
// else its first owner. An owner that the caller cannot read is the last one.
func (o *Owners) Above(ctx context.Context, object ObjectRef) []ObjectRef {
	var ancestors []ObjectRef
	seen := map[ObjectRef]bool{object: true}
	for len(ancestors) < MaxOwners {
		owners := o.ownersOf(ctx, object)
		if len(owners) == 0 || seen[owners[0]] {
			break
		}
		object = owners[0]
		seen[object] = true
		ancestors = append(ancestors, object)
	}
	return ancestors
}

// ownersOf returns the owners of an object, its controller first.
func (o *Owners) ownersOf(ctx context.Context, object ObjectRef) []ObjectRef {
	if owners, ok := o.Read[object]; ok || object.Version == "" {
		return owners
	}
	owners, err := o.get(ctx, object)
	o.Read[object] = owners
	if err != nil && !apierrors.IsNotFound(err) && o.unread[object.Kind] == nil {
		o.unread[object.Kind] = err
	}
	return owners
}

func (o *Owners) get(ctx context.Context, object ObjectRef) ([]ObjectRef, error) {
	key := client.ObjectKey{Namespace: object.Namespace, Name: object.Name}
	if object.APIGroup == v1alpha1.GroupVersion.Group && object.Kind == "IPClaim" {
		claim := &v1alpha1.IPClaim{}
		err := o.client.Get(ctx, key, claim)
		owners := ownersOfClaim(claim)
		if o.Networks[object] = NetworkOf(claim); o.Networks[object] != nil && len(owners) > 0 && owners[0].Kind == "Cluster" {
			o.Read[owners[0]] = nil // the Cluster, which users of the claim may not be allowed to get
		}
		return owners, err
	}
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(schema.GroupVersionKind{Group: object.APIGroup, Version: object.Version, Kind: object.Kind})
	err := o.client.Get(ctx, key, found)
	return OwnersOf(found), err
}

// OwnersOf returns the owners that an object names, its controller first.
func OwnersOf(object client.Object) []ObjectRef {
	var owners []ObjectRef
	for _, reference := range object.GetOwnerReferences() {
		group, err := schema.ParseGroupVersion(reference.APIVersion)
		if err != nil {
			continue
		}
		owner := ObjectRef{APIGroup: group.Group, Kind: reference.Kind, Namespace: object.GetNamespace(), Name: reference.Name, Version: group.Version}
		if ptr.Deref(reference.Controller, false) {
			owners = slices.Insert(owners, 0, owner)
		} else {
			owners = append(owners, owner)
		}
	}
	return owners
}

// ownersOfClaim returns the owners that a claim names as any object does, else the user of the
// block that its spec names.
func ownersOfClaim(claim *v1alpha1.IPClaim) []ObjectRef {
	if owners := OwnersOf(claim); len(owners) > 0 || claim.Spec.OwnerRef == nil {
		return owners
	}
	owner := claim.Spec.OwnerRef
	return []ObjectRef{{APIGroup: owner.APIGroup, Kind: owner.Kind, Namespace: claim.Namespace, Name: owner.Name}}
}

// Explain notes the kinds of which an object could not be read.
func (o *Owners) Explain(e *Env) {
	for _, kind := range slices.Sorted(maps.Keys(o.unread)) {
		err := o.unread[kind]
		switch {
		case meta.IsNoMatchError(err):
		case apierrors.IsForbidden(err):
			e.Note("you may not get every %s, so owners above them may be missing here: ask for the right to get them", kind)
		default:
			e.Note("an object of kind %s could not be read, so owners above it are missing here: %v", kind, err)
		}
	}
}

// UserOf returns the owner that a person looks for: the Machine, else the nearest one.
func UserOf(ancestors []ObjectRef) string {
	if len(ancestors) == 0 {
		return ""
	}
	return ancestors[max(slices.IndexFunc(ancestors, ObjectRef.IsMachine), 0)].InNamespace()
}

// InNamespace returns the kind and the name, for use beside an object of the same namespace.
func (r ObjectRef) InNamespace() string { return r.Kind + " " + r.Name }
