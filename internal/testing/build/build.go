// Package build makes API objects for tests, so that a test reads as a story:
//
//	build.Pool("p").CIDR("10.0.0.0/24").Obj()
//	build.Claim("team", "a").Pool("p").Length(28).Obj()
//	build.Pool("p").CIDR("10.0.0.0/24").In("team") // a LocalIPPool
package build

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// PoolBuilder builds an IPPool.
type PoolBuilder struct{ obj v1alpha1.IPPool }

// Pool begins a pool.
func Pool(name string) *PoolBuilder {
	return &PoolBuilder{v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}}
}

// Obj returns the pool.
func (b *PoolBuilder) Obj() *v1alpha1.IPPool { return b.obj.DeepCopy() }

// In returns the same pool as a namespace's own.
func (b *PoolBuilder) In(namespace string) *v1alpha1.LocalIPPool {
	local := &v1alpha1.LocalIPPool{ObjectMeta: *b.obj.ObjectMeta.DeepCopy()}
	local.Namespace = namespace
	local.Spec.PoolSpec = *b.obj.Spec.PoolSpec.DeepCopy()
	return local
}

// CIDR states the pool's space.
func (b *PoolBuilder) CIDR(cidr string) *PoolBuilder {
	b.obj.Spec.CIDR = cidr
	return b
}

// Child makes the pool a child of a parent, of a length.
func (b *PoolBuilder) Child(parent string, length int32) *PoolBuilder {
	b.obj.Spec.ParentRef = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: parent}
	b.obj.Spec.PrefixLength = &length
	return b
}

// Beside makes the pool a child of a LocalIPPool, of a length.
func (b *PoolBuilder) Beside(parent string, length int32) *PoolBuilder {
	b.Child(parent, length).obj.Spec.ParentRef.Kind = v1alpha1.PoolKindLocalIPPool
	return b
}

// Domain places a root pool in a routing domain.
func (b *PoolBuilder) Domain(name string) *PoolBuilder {
	b.obj.Spec.RoutingDomain = name
	return b
}

// Classes sets the classes that the pool backs.
func (b *PoolBuilder) Classes(names ...string) *PoolBuilder {
	b.obj.Spec.ClassNames = names
	return b
}

// Label labels the pool.
func (b *PoolBuilder) Label(key, value string) *PoolBuilder {
	b.obj.Labels = map[string]string{key: value}
	return b
}

// Ranges restricts the addresses that are handed out.
func (b *PoolBuilder) Ranges(ranges ...string) *PoolBuilder {
	b.obj.Spec.Ranges = ranges
	return b
}

// Occupies makes the pool occupy these ranges of its CIDR alone.
func (b *PoolBuilder) Occupies(ranges ...string) *PoolBuilder {
	b.obj.Spec.Occupies = v1alpha1.OccupiesRanges
	return b.Ranges(ranges...)
}

// Reserved withholds ranges.
func (b *PoolBuilder) Reserved(ranges ...string) *PoolBuilder {
	b.obj.Spec.Reserved = ranges
	return b
}

// Network makes the pool one of host addresses; the gateway may be empty.
func (b *PoolBuilder) Network(length int32, gateway string) *PoolBuilder {
	b.obj.Spec.Network = &v1alpha1.PoolNetwork{PrefixLength: length, Gateway: gateway}
	return b
}

// Strategy sets the choice of the free block that is handed out.
func (b *PoolBuilder) Strategy(s v1alpha1.Strategy) *PoolBuilder {
	b.allocation().Strategy = s
	return b
}

// Lengths bounds the lengths that are handed out.
func (b *PoolBuilder) Lengths(shortest, longest int32) *PoolBuilder {
	b.allocation().MinPrefixLength, b.allocation().MaxPrefixLength = &shortest, &longest
	return b
}

// Rejects makes the pool refuse claims for which there is no room.
func (b *PoolBuilder) Rejects() *PoolBuilder {
	b.obj.Spec.OnExhaustion = v1alpha1.OnExhaustionReject
	return b
}

// Limit sets the number of blocks that each project can hold of the pool.
func (b *PoolBuilder) Limit(blocks int64) *PoolBuilder {
	b.obj.Spec.Limits = Limits(blocks)
	return b
}

// With edits the spec.
func (b *PoolBuilder) With(edit func(*v1alpha1.IPPoolSpec)) *PoolBuilder {
	edit(&b.obj.Spec)
	return b
}

func (b *PoolBuilder) allocation() *v1alpha1.PoolAllocation {
	if b.obj.Spec.Allocation == nil {
		b.obj.Spec.Allocation = &v1alpha1.PoolAllocation{}
	}
	return b.obj.Spec.Allocation
}

// ClassBuilder builds an IPClass.
type ClassBuilder struct{ obj v1alpha1.IPClass }

// Class begins a class for IPv4.
func Class(name string) *ClassBuilder {
	return &ClassBuilder{v1alpha1.IPClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4}}}
}

// Obj returns the class.
func (b *ClassBuilder) Obj() *v1alpha1.IPClass { return b.obj.DeepCopy() }

// LocalPools lets LocalIPPools back the class.
func (b *ClassBuilder) LocalPools() *ClassBuilder {
	b.obj.Spec.AllowLocalPools = true
	return b
}

// V6 makes the class one for IPv6.
func (b *ClassBuilder) V6() *ClassBuilder {
	b.obj.Spec.IPFamily = v1alpha1.IPv6
	return b
}

// Default makes the class the default of its family.
func (b *ClassBuilder) Default() *ClassBuilder {
	b.obj.Annotations = map[string]string{v1alpha1.AnnotationDefaultClass: "true"}
	return b
}

// Length sets the length for claims that name none.
func (b *ClassBuilder) Length(bits int32) *ClassBuilder {
	b.obj.Spec.DefaultPrefixLength = &bits
	return b
}

// Lengths bounds the lengths that claims can ask for.
func (b *ClassBuilder) Lengths(shortest, longest int32) *ClassBuilder {
	b.obj.Spec.AllowedPrefixLengths = &v1alpha1.PrefixLengthBounds{Min: &shortest, Max: &longest}
	return b
}

// With edits the spec.
func (b *ClassBuilder) With(edit func(*v1alpha1.IPClassSpec)) *ClassBuilder {
	edit(&b.obj.Spec)
	return b
}

// ClaimBuilder builds an IPClaim.
type ClaimBuilder struct{ obj v1alpha1.IPClaim }

// Claim begins a claim.
func Claim(namespace, name string) *ClaimBuilder {
	return &ClaimBuilder{v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}}
}

// Obj returns the claim.
func (b *ClaimBuilder) Obj() *v1alpha1.IPClaim { return b.obj.DeepCopy() }

// Pool names the pool.
func (b *ClaimBuilder) Pool(name string) *ClaimBuilder {
	b.obj.Spec.PoolRef = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: name}
	return b
}

// LocalPool names a pool of the claim's namespace.
func (b *ClaimBuilder) LocalPool(name string) *ClaimBuilder {
	b.obj.Spec.PoolRef = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindLocalIPPool, Name: name}
	return b
}

// Class names the class.
func (b *ClaimBuilder) Class(name string) *ClaimBuilder {
	b.obj.Spec.ClassName = name
	return b
}

// Selecting selects pools by a label.
func (b *ClaimBuilder) Selecting(key, value string) *ClaimBuilder {
	b.obj.Spec.PoolSelector = &v1alpha1.PoolSelector{MatchLabels: map[string]v1alpha1.LabelValue{key: v1alpha1.LabelValue(value)}}
	return b
}

// Length sets the size of the block.
func (b *ClaimBuilder) Length(bits int32) *ClaimBuilder {
	b.obj.Spec.PrefixLength = &bits
	return b
}

// CIDR asks for exactly this block.
func (b *ClaimBuilder) CIDR(cidr string) *ClaimBuilder {
	b.obj.Spec.CIDR = cidr
	return b
}

// Generated leaves the name to be made from a prefix.
func (b *ClaimBuilder) Generated(prefix string) *ClaimBuilder {
	b.obj.Name, b.obj.GenerateName = "", prefix
	return b
}

// Finalizer adds a finalizer of another program.
func (b *ClaimBuilder) Finalizer(name string) *ClaimBuilder {
	b.obj.Finalizers = append(b.obj.Finalizers, name)
	return b
}

// With edits the spec.
func (b *ClaimBuilder) With(edit func(*v1alpha1.IPClaimSpec)) *ClaimBuilder {
	edit(&b.obj.Spec)
	return b
}

// Namespace returns a namespace that is its own project.
func Namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// NamespaceOf returns a namespace that belongs to a project.
func NamespaceOf(project, name string) *corev1.Namespace {
	namespace := Namespace(name)
	namespace.Labels = map[string]string{v1alpha1.LabelProject: project}
	return namespace
}

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

// Merge returns a merge patch.
func Merge(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

// Versioned returns a pool as it is at a resource version.
func Versioned(pool *v1alpha1.IPPool, version string) *v1alpha1.IPPool {
	pool = pool.DeepCopy()
	pool.ResourceVersion = version
	return pool
}

// Count returns a number of addresses, which must be valid.
func Count(text string) space.Count {
	n, ok := space.ParseCount(text)
	if !ok {
		panic(text + " is not a number of addresses")
	}
	return n
}

// Limits returns the limit of a number of blocks for each project.
func Limits(blocks int64) *v1alpha1.Limits {
	return &v1alpha1.Limits{PerProject: &v1alpha1.ProjectLimits{Blocks: &blocks}}
}

// Editor returns the binding of a user to the built-in role edit in a namespace.
func Editor(user, namespace string) *rbacv1.RoleBinding { return Binding(user, namespace, "edit") }

// Binding returns the binding of a user to a ClusterRole in a namespace.
func Binding(user, namespace, role string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{User(user)},
	}
}

// ClusterRole returns a role with rules.
func ClusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
}

// ClusterBinding returns a binding to a ClusterRole in all namespaces.
func ClusterBinding(name, role string, to rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{to},
	}
}

// User returns a user as the subject of a binding.
func User(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

// ServiceAccount returns a service account as the subject of a binding.
func ServiceAccount(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

// Refusal returns a policy, and its binding, that refuses new IPClaims with a label, of one
// namespace or, if that is empty, of all. The webhooks that fill in blocks are asked before.
func Refusal(name, label, namespace string) (*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{
		ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{v1alpha1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"ipclaims"}},
		}}},
	}
	if namespace != "" {
		policy.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	}
	policy.Spec.Validations = []admissionv1.Validation{{
		Expression: "!('" + label + "' in object.metadata.?labels.orValue({}))", Message: "it has the label " + label,
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	binding.Spec.PolicyName, binding.Spec.ValidationActions = name, []admissionv1.ValidationAction{admissionv1.Deny}
	return policy, binding
}

// Cluster returns a Cluster of Cluster API, which no infrastructure provider serves.
func Cluster(namespace, name string) *clusterv1.Cluster {
	obj := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	obj.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "NobodysCluster", Name: name}
	return obj
}

// Networked sets the label of a Cluster that gets its networks, and the annotations that ask for them. It
// returns the Cluster.
func Networked(cluster *clusterv1.Cluster, annotations map[string]string) *clusterv1.Cluster {
	cluster.Labels = map[string]string{v1alpha1.LabelClusterNetworks: v1alpha1.ClusterNetworksEnabled}
	cluster.Annotations = annotations
	return cluster
}
