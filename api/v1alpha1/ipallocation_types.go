package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// FinalizerHeld is on every IPAllocation from its creation: the record stays, and its block stays
// in use, until its holder no longer exists, even if its namespace is being deleted.
const FinalizerHeld = "ipam.cadastre.dev/held"

// AnnotationAdopted marks an IPAllocation that was adopted after its creation: by a second leader
// that found it, or for a claim or pool that was created again under the name. The deletion of an
// earlier holder does not release it.
const AnnotationAdopted = "ipam.cadastre.dev/adopted"

// AnnotationPoolUnknown marks an IPAllocation that was created for an IPAddress while its pool was
// unknown. When the pool appears, the operator checks whether the namespace can use it; if not, the
// IPAllocation is released. Only the operator writes it.
const AnnotationPoolUnknown = "ipam.cadastre.dev/pool-unknown"

// AnnotationGivenUp on a waiting claim or pool has the UID and the resourceVersion, separated by a
// slash, of an IPAllocation that was created for it and is given up. The write prevents a replica
// that read the object before, and was paused, from filling in that IPAllocation.
const AnnotationGivenUp = "ipam.cadastre.dev/given-up"

// MaxRecordBlocks is the number of blocks that one record can hold: cidr and additionalCIDRs.
const MaxRecordBlocks = 64

// MaxRequestedBy is the number of characters of a user's name that a record keeps.
const MaxRequestedBy = 1024

// AllocationPurpose is the purpose of a held block.
// +kubebuilder:validation:Enum=Claim;Pool
type AllocationPurpose string

// The purposes of a held block: a claim, or the space of a pool.
const (
	PurposeClaim AllocationPurpose = "Claim"
	PurposePool  AllocationPurpose = "Pool"
)

// AllocationState is the state of a held block.
// +kubebuilder:validation:Enum=Bound;Retained;Cooling;Releasing
type AllocationState string

// The states of a held block: held by its holder; kept after its holder is gone; not allocated
// again yet; and, only for a pool's own record, about to be released: the pool allocates no blocks.
const (
	AllocationBound     AllocationState = "Bound"
	AllocationRetained  AllocationState = "Retained"
	AllocationCooling   AllocationState = "Cooling"
	AllocationReleasing AllocationState = "Releasing"
)

// RecordPoolReference names the pool of a held block.
type RecordPoolReference struct {
	// kind of the pool. Default: IPPool.
	// +kubebuilder:validation:Enum=IPPool;LocalIPPool;GlobalInClusterIPPool;InClusterIPPool
	// +kubebuilder:default=IPPool
	// +optional
	Kind PoolKind `json:"kind,omitempty"`

	// name of the pool.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// The rules of IPAllocations and IPClaims refer to oldSelf, so that the API server applies them to
// updates only. The operator creates all IPAllocations and judges all IPClaims that are created; rules
// that judged them again took a tenth of the CPU time of a create.
//
// The spec of an IPAllocation is atomic: only the operator writes it, and the managed fields of its fields
// would take more than half of the object.

// IPAllocationSpec records a held block, its holder and its pool.
// +structType=atomic
// +kubebuilder:validation:XValidation:rule="has(self.poolRef) == has(oldSelf.poolRef) && (!has(self.poolRef) || self.poolRef == oldSelf.poolRef)",message="is immutable: make a new claim to hold a block of another pool",reason=FieldValueForbidden,fieldPath=.poolRef
// +kubebuilder:validation:XValidation:rule="has(self.routingDomain) == has(oldSelf.routingDomain) && (!has(self.routingDomain) || self.routingDomain == oldSelf.routingDomain)",message="is immutable: make a new claim to hold a block of another pool",reason=FieldValueForbidden,fieldPath=.routingDomain
// +kubebuilder:validation:XValidation:rule="has(self.additionalCIDRs) == has(oldSelf.additionalCIDRs) && (!has(self.additionalCIDRs) || self.additionalCIDRs == oldSelf.additionalCIDRs)",message="is immutable: make a new claim to hold other blocks",reason=FieldValueForbidden,fieldPath=.additionalCIDRs
// +kubebuilder:validation:XValidation:rule="self.claimRef.apiGroup == oldSelf.claimRef.apiGroup && self.claimRef.kind == oldSelf.claimRef.kind && (self.claimRef.name == oldSelf.claimRef.name || (has(oldSelf.stickyKey) && oldSelf.state == 'Retained' && self.state == 'Bound'))",message="is immutable, unless a claim takes over the block that was retained under its sticky key: make a new claim",reason=FieldValueForbidden,fieldPath=.claimRef
// +kubebuilder:validation:XValidation:rule="has(self.claimRef.__namespace__) == has(oldSelf.claimRef.__namespace__) && (!has(self.claimRef.__namespace__) || self.claimRef.__namespace__ == oldSelf.claimRef.__namespace__)",message="is immutable: make a new claim",reason=FieldValueForbidden,fieldPath=.claimRef.namespace
type IPAllocationSpec struct {
	// cidr is the block. Immutable.
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: make a new claim to hold another block",reason=FieldValueForbidden
	// +required
	CIDR string `json:"cidr"`

	// additionalCIDRs are further blocks of the same pool and family, which are held together with
	// cidr: those of a pool that occupies its ranges. No two blocks of the record overlap. Immutable.
	// +kubebuilder:validation:MaxItems=63
	// +kubebuilder:validation:items:MaxLength=43
	// +listType=atomic
	// +optional
	AdditionalCIDRs []string `json:"additionalCIDRs,omitempty"`

	// ipFamily of the block. Immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: make a new claim to hold another block",reason=FieldValueForbidden
	// +required
	IPFamily IPFamily `json:"ipFamily"`

	// poolRef is the pool of the block; a LocalIPPool or InClusterIPPool is in the holder's namespace.
	// Not set on the record of a root pool, which has a routingDomain. Immutable.
	// +optional
	PoolRef *RecordPoolReference `json:"poolRef,omitempty"`

	// routingDomain is the routing domain of the root pool whose own record this is; that of a
	// LocalIPPool is separate for each namespace. Immutable.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	RoutingDomain string `json:"routingDomain,omitempty"`

	// className is the class through which the block was allocated. Immutable.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ClassName string `json:"className,omitempty"`

	// claimRef names the holder: in this namespace, in another one, or cluster-scoped. The uid is
	// set if the holder existed when the block was recorded.
	// +required
	ClaimRef ClaimReference `json:"claimRef"`

	// purpose of the block: for a claim, or as the space of a pool. Immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: make a new claim",reason=FieldValueForbidden
	// +required
	Purpose AllocationPurpose `json:"purpose"`

	// reclaimPolicy defines the handling of the block when the holder is gone. Default: Delete.
	// +kubebuilder:default=Delete
	// +optional
	ReclaimPolicy ReclaimPolicy `json:"reclaimPolicy,omitempty"`

	// state of the block: held by its holder (Bound), kept for a later claim of the same name
	// (Retained), or without a holder until its reuseDelay is over (Cooling). Deleting a Retained
	// record releases its block: at once, or, if its class or pool has a reuseDelay, when that is
	// over. Until then the record stays, Cooling and terminating. Default: Bound.
	// +kubebuilder:default=Bound
	// +optional
	State AllocationState `json:"state,omitempty"`

	// releaseAfter is the time at which a Retained or Cooling block is free. On a Bound block: the
	// block was retained, is taken over by a claim that is being created, and is retained again
	// until this time if that claim is never stored.
	// +optional
	ReleaseAfter *metav1.Time `json:"releaseAfter,omitempty"`

	// stickyKey is the key by which a later claim of the namespace gets this block again after it
	// is retained. Immutable.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: make a new claim",reason=FieldValueForbidden
	// +optional
	StickyKey string `json:"stickyKey,omitempty"`

	// project of the holder's namespace when the block was recorded, for which limits count the
	// block. A later change of the namespace's label does not affect it. Not set on the record of
	// an IPPool. Immutable.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: make a new claim",reason=FieldValueForbidden
	// +optional
	Project string `json:"project,omitempty"`

	// gateway that was allocated with the address. The pool withholds it while this record is
	// Bound, also after the pool has another gateway. Not set: the pool had none, the block has
	// more than one address, or the record is from a version that did not record it.
	// +kubebuilder:validation:MaxLength=39
	// +optional
	Gateway string `json:"gateway,omitempty"`

	// requestedBy is the name of the user that created the claim or pool of this block, or its
	// first 1,024 characters. Not set if unknown: for an IPAddressClaim, a pool that waited for its
	// parent, or a claim whose record was created again.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	RequestedBy string `json:"requestedBy,omitempty"`
}

// ClaimReference names the holder of a block.
type ClaimReference struct {
	// apiGroup of the holder.
	// +kubebuilder:validation:MaxLength=253
	// +required
	APIGroup string `json:"apiGroup"`

	// kind of the holder.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Kind string `json:"kind"`

	// name of the holder.
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// namespace of a LocalIPPool, whose own record is in another namespace. Not set: a claim in the
	// namespace of this record, or an IPPool.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// uid of the holder, if it was known.
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// IPAllocation is the record of a held block. IPAllocations are the only source of truth about used
// addresses. Only the operator creates and changes them; to release a block, delete its claim.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=ipalloc,categories=cadastre
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.poolRef.name`
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.claimRef.kind`
// +kubebuilder:printcolumn:name="Holder",type=string,JSONPath=`.spec.claimRef.name`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.spec.state`
// +kubebuilder:printcolumn:name="Requested By",type=string,priority=1,JSONPath=`.spec.requestedBy`
// +kubebuilder:printcolumn:name="Class",type=string,priority=1,JSONPath=`.spec.className`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.cidr`
// +kubebuilder:selectablefield:JSONPath=`.spec.poolRef.name`
// +kubebuilder:selectablefield:JSONPath=`.spec.claimRef.name`
type IPAllocation struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec IPAllocationSpec `json:"spec"`
}

// IPAllocationList is a list of IPAllocations.
// +kubebuilder:object:root=true
type IPAllocationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPAllocation `json:"items"`
}
