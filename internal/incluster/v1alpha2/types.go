package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	provider "sigs.k8s.io/cluster-api-ipam-provider-in-cluster/api/v1alpha2"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// GroupVersion is the API group and version of the in-cluster provider.
var GroupVersion = provider.GroupVersion

// AddToScheme registers the kinds.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &InClusterIPPool{}, &InClusterIPPoolList{}, &GlobalInClusterIPPool{}, &GlobalInClusterIPPoolList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// Names of the in-cluster provider.
const (
	// DefaultNamespace is the namespace in which its manifests install it.
	DefaultNamespace = "capi-ipam-in-cluster-system"
	// WebhookService is the Service of its webhooks.
	WebhookService = "capi-ipam-in-cluster-webhook-service"

	// FinalizerPool is on every pool: it stays until the last address is released.
	FinalizerPool = "ipam.cluster.x-k8s.io/ProtectPool"
	// FinalizerRelease is on every IPAddressClaim of these pools: it stays until the address is released.
	FinalizerRelease = "ipam.cluster.x-k8s.io/ReleaseAddress"
	// FinalizerProtect is on every IPAddress of these pools: it stays until the claim is gone.
	FinalizerProtect = "ipam.cluster.x-k8s.io/ProtectAddress"

	// AnnotationSkipDeleteCheck on a pool lets it be deleted while addresses of it are in use, as
	// clusterctl move needs it.
	AnnotationSkipDeleteCheck = "ipam.cluster.x-k8s.io/skip-validate-delete-webhook"
)

// AnnotationRoutingDomain on a pool names its routing domain. Default: default.
const AnnotationRoutingDomain = "ipam.cadastre.dev/routing-domain"

// Pool is implemented by both kinds, *InClusterIPPool and *GlobalInClusterIPPool.
// +kubebuilder:object:generate=false
type Pool interface {
	v1alpha1.Pool
	// InClusterSpec returns the spec as the in-cluster provider defines it.
	InClusterSpec() *provider.InClusterIPPoolSpec
	// TrimStatus removes from the status what is not stored of it.
	TrimStatus()
}

var (
	_ Pool = &InClusterIPPool{}
	_ Pool = &GlobalInClusterIPPool{}
)

// +kubebuilder:object:root=true

// InClusterIPPool is a pool for the IPAddressClaims of its namespace.
type InClusterIPPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   provider.InClusterIPPoolSpec `json:"spec,omitempty"`
	Status PoolStatus                   `json:"status,omitempty"`
}

// +kubebuilder:object:root=true

// InClusterIPPoolList is a list of InClusterIPPools.
type InClusterIPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []InClusterIPPool `json:"items"`
}

// +kubebuilder:object:root=true

// GlobalInClusterIPPool is a pool for the IPAddressClaims of all namespaces.
type GlobalInClusterIPPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   provider.InClusterIPPoolSpec `json:"spec,omitempty"`
	Status PoolStatus                   `json:"status,omitempty"`
}

// +kubebuilder:object:root=true

// GlobalInClusterIPPoolList is a list of GlobalInClusterIPPools.
type GlobalInClusterIPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GlobalInClusterIPPool `json:"items"`
}

// PoolKind implements v1alpha1.Pool.
func (*InClusterIPPool) PoolKind() v1alpha1.PoolKind { return v1alpha1.PoolKindInClusterIPPool }

// PoolSpec implements v1alpha1.Pool.
func (p *InClusterIPPool) PoolSpec() *v1alpha1.PoolSpec { return specOf(p) }

// PoolStatus implements v1alpha1.Pool.
func (p *InClusterIPPool) PoolStatus() *v1alpha1.PoolStatus { return &p.Status.PoolStatus }

// SharedWith implements v1alpha1.Pool: only claims of its namespace can use it.
func (*InClusterIPPool) SharedWith() (v1alpha1.Visibility, string) { return "", "" }

// InClusterSpec implements Pool.
func (p *InClusterIPPool) InClusterSpec() *provider.InClusterIPPoolSpec { return &p.Spec }

// TrimStatus implements Pool.
func (p *InClusterIPPool) TrimStatus() { p.Status = p.Status.stored().status() }

// PoolKind implements v1alpha1.Pool.
func (*GlobalInClusterIPPool) PoolKind() v1alpha1.PoolKind {
	return v1alpha1.PoolKindGlobalInClusterIPPool
}

// PoolSpec implements v1alpha1.Pool.
func (p *GlobalInClusterIPPool) PoolSpec() *v1alpha1.PoolSpec { return specOf(p) }

// PoolStatus implements v1alpha1.Pool.
func (p *GlobalInClusterIPPool) PoolStatus() *v1alpha1.PoolStatus { return &p.Status.PoolStatus }

// SharedWith implements v1alpha1.Pool: claims of every namespace can use it.
func (*GlobalInClusterIPPool) SharedWith() (v1alpha1.Visibility, string) {
	return v1alpha1.VisibilityShared, ""
}

// InClusterSpec implements Pool.
func (p *GlobalInClusterIPPool) InClusterSpec() *provider.InClusterIPPoolSpec { return &p.Spec }

// TrimStatus implements Pool.
func (p *GlobalInClusterIPPool) TrimStatus() { p.Status = p.Status.stored().status() }

// specOf returns what the spec of a pool states, in the fields of an IPPool. It is for reading; the
// CIDR follows from addresses and prefix, and is left out.
func specOf(p Pool) *v1alpha1.PoolSpec {
	spec := p.InClusterSpec()
	return &v1alpha1.PoolSpec{
		Occupies: v1alpha1.OccupiesRanges, Ranges: spec.Addresses, Reserved: spec.ExcludedAddresses,
		RoutingDomain: p.GetAnnotations()[AnnotationRoutingDomain],
		Network: &v1alpha1.PoolNetwork{
			PrefixLength: int32(spec.Prefix), Gateway: spec.Gateway, AllocateEdgeAddresses: spec.AllocateReservedIPAddresses, //nolint:gosec // 0 to 128
		},
	}
}
