package build

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// AddressClaimBuilder builds one of Cluster API's IPAddressClaims.
type AddressClaimBuilder struct{ obj ipamv1.IPAddressClaim }

// AddressClaim begins a claim.
func AddressClaim(namespace, name string) *AddressClaimBuilder {
	return &AddressClaimBuilder{ipamv1.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}}
}

// Obj returns the claim.
func (b *AddressClaimBuilder) Obj() *ipamv1.IPAddressClaim { return b.obj.DeepCopy() }

// Pool names an IPPool.
func (b *AddressClaimBuilder) Pool(name string) *AddressClaimBuilder {
	return b.From(v1alpha1.GroupVersion.Group, string(v1alpha1.PoolKindIPPool), name)
}

// Class names an IPClass.
func (b *AddressClaimBuilder) Class(name string) *AddressClaimBuilder {
	return b.From(v1alpha1.GroupVersion.Group, "IPClass", name)
}

// From names the object that gives addresses, of any kind.
func (b *AddressClaimBuilder) From(group, kind, name string) *AddressClaimBuilder {
	b.obj.Spec.PoolRef = ipamv1.IPPoolReference{APIGroup: group, Kind: kind, Name: name}
	return b
}

// Cluster names the Cluster in the spec.
func (b *AddressClaimBuilder) Cluster(name string) *AddressClaimBuilder {
	b.obj.Spec.ClusterName = name
	return b
}

// ClusterLabel names the Cluster by the label alone.
func (b *AddressClaimBuilder) ClusterLabel(name string) *AddressClaimBuilder {
	return b.Label(clusterv1.ClusterNameLabel, name)
}

// Label labels the claim.
func (b *AddressClaimBuilder) Label(key, value string) *AddressClaimBuilder {
	metav1.SetMetaDataLabel(&b.obj.ObjectMeta, key, value)
	return b
}

// Annotation annotates the claim.
func (b *AddressClaimBuilder) Annotation(key, value string) *AddressClaimBuilder {
	metav1.SetMetaDataAnnotation(&b.obj.ObjectMeta, key, value)
	return b
}

// Finalizer adds a finalizer of another program.
func (b *AddressClaimBuilder) Finalizer(name string) *AddressClaimBuilder {
	b.obj.Finalizers = append(b.obj.Finalizers, name)
	return b
}

// OwnedBy adds an owner.
func (b *AddressClaimBuilder) OwnedBy(ref metav1.OwnerReference) *AddressClaimBuilder {
	b.obj.OwnerReferences = append(b.obj.OwnerReferences, ref)
	return b
}
