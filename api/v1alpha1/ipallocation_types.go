package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// FinalizerHeld is on every IPAllocation from birth: the record stays, and its
// block stays taken, until its holder is really gone, even when its namespace
// is deleted around it.
const FinalizerHeld = "ipam.cadastre.dev/held"

// AnnotationAdopted on an IPAllocation says that it was taken over after it was
// made: by a second leader that found it, or for a claim or pool that was made
// again under the name. The deletion of an earlier holder does not release it.
const AnnotationAdopted = "ipam.cadastre.dev/adopted"

// AnnotationPoolUnknown on an IPAllocation says that it was made for an IPAddress when
// its pool was not known. When the pool comes, it is judged whether the namespace may
// use that; if not, the IPAllocation is released. Only the operator writes it.
const AnnotationPoolUnknown = "ipam.cadastre.dev/pool-unknown"

// AnnotationGivenUp on a claim or a pool that waits has the UID of an IPAllocation
// that was made for it and is given up. It is written so that a replica that read
// the object before, and was paused, cannot fill that one in.
const AnnotationGivenUp = "ipam.cadastre.dev/given-up"

// MaxRequestedBy is how many characters of a user's name a record keeps.
const MaxRequestedBy = 1024

// AllocationPurpose says what a block is held for.
// +kubebuilder:validation:Enum=Claim;Pool
type AllocationPurpose string

// What a block is held for: a claim, or as the space of a pool.
const (
	PurposeClaim AllocationPurpose = "Claim"
	PurposePool  AllocationPurpose = "Pool"
)

// AllocationState says how a block is held.
// +kubebuilder:validation:Enum=Bound;Retained;Cooling;Releasing
type AllocationState string

// How a block is held: by its holder; kept after its holder is gone; not yet to
// be handed out again; of a pool's own record only, about to be released: nothing
// is handed out from the pool.
const (
	AllocationBound     AllocationState = "Bound"
	AllocationRetained  AllocationState = "Retained"
	AllocationCooling   AllocationState = "Cooling"
	AllocationReleasing AllocationState = "Releasing"
)

// IPAllocationSpec records that a block is held, by which holder, and from which pool.
// +kubebuilder:validation:XValidation:rule="has(self.poolRef) != has(self.routingDomain)",message="exactly one of poolRef and routingDomain says where the block lies: set one of them",reason=FieldValueInvalid
// +kubebuilder:validation:XValidation:rule="has(self.poolRef) == has(oldSelf.poolRef) && (!has(self.poolRef) || self.poolRef == oldSelf.poolRef)",message="is immutable: make a new claim to hold a block of another pool",reason=FieldValueForbidden,fieldPath=.poolRef
// +kubebuilder:validation:XValidation:rule="has(self.routingDomain) == has(oldSelf.routingDomain) && (!has(self.routingDomain) || self.routingDomain == oldSelf.routingDomain)",message="is immutable: make a new claim to hold a block of another pool",reason=FieldValueForbidden,fieldPath=.routingDomain
// +kubebuilder:validation:XValidation:rule="self.claimRef.apiGroup == oldSelf.claimRef.apiGroup && self.claimRef.kind == oldSelf.claimRef.kind && (self.claimRef.name == oldSelf.claimRef.name || (has(oldSelf.stickyKey) && oldSelf.state == 'Retained' && self.state == 'Bound'))",message="is immutable, unless a claim takes over the block that was retained under its sticky key: make a new claim",reason=FieldValueForbidden,fieldPath=.claimRef
// +kubebuilder:validation:XValidation:rule="has(self.claimRef.__namespace__) == has(oldSelf.claimRef.__namespace__) && (!has(self.claimRef.__namespace__) || self.claimRef.__namespace__ == oldSelf.claimRef.__namespace__)",message="is immutable: make a new claim",reason=FieldValueForbidden,fieldPath=.claimRef.namespace
// +kubebuilder:validation:XValidation:rule="!has(self.state) || self.state != 'Releasing' || self.purpose == 'Pool'",message="Releasing is for the record of a pool: write Bound, Retained or Cooling",reason=FieldValueInvalid,fieldPath=.state
// +kubebuilder:validation:XValidation:rule="has(self.claimRef.__namespace__) == (self.claimRef.kind == 'LocalIPPool')",message="is that of a LocalIPPool, and of no other holder: set it for a LocalIPPool alone",reason=FieldValueInvalid,fieldPath=.claimRef.namespace
type IPAllocationSpec struct {
	// cidr is the block. Immutable.
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked()",message="is not a CIDR without host bits: write one such as 10.0.0.0/24 or 2001:db8::/64",reason=FieldValueInvalid
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: make a new claim to hold another block",reason=FieldValueForbidden
	// +required
	CIDR string `json:"cidr"`

	// ipFamily of the block. Immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: make a new claim to hold another block",reason=FieldValueForbidden
	// +required
	IPFamily IPFamily `json:"ipFamily"`

	// poolRef is the pool that the block lies in; a LocalIPPool is one of the
	// holder's namespace. Absent on the record of a root pool, which has a
	// routingDomain. Immutable.
	// +optional
	PoolRef *PoolReference `json:"poolRef,omitempty"`

	// routingDomain is that of the root pool whose own record this is; that of
	// a LocalIPPool is its namespace's own. Immutable.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	RoutingDomain string `json:"routingDomain,omitempty"`

	// className is the class by which the block was handed out. Immutable.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ClassName string `json:"className,omitempty"`

	// claimRef names the holder: in this namespace, in another one, or
	// cluster-scoped. Its uid is known for a holder that existed when the block
	// was recorded.
	// +required
	ClaimRef ClaimReference `json:"claimRef"`

	// purpose says what the block is held for. Immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: make a new claim",reason=FieldValueForbidden
	// +required
	Purpose AllocationPurpose `json:"purpose"`

	// reclaimPolicy says what becomes of the block when the holder is gone.
	// Default: Delete.
	// +kubebuilder:default=Delete
	// +optional
	ReclaimPolicy ReclaimPolicy `json:"reclaimPolicy,omitempty"`

	// state is how the block is held: by its holder (Bound), for a later claim of the
	// same name (Retained), or without a holder, until its reuseDelay is over (Cooling).
	// Deleting a Retained record releases its block: at once, or where its class or
	// pool has a reuseDelay, when that is over. Until then the record stays, Cooling
	// and terminating. Default: Bound.
	// +kubebuilder:default=Bound
	// +optional
	State AllocationState `json:"state,omitempty"`

	// releaseAfter is when a Retained or Cooling block is free. On a Bound one: it was
	// retained, is taken over by a claim that is being created, and is retained again
	// until then where that claim is never stored.
	// +optional
	ReleaseAfter *metav1.Time `json:"releaseAfter,omitempty"`

	// stickyKey is the key by which a later claim of the namespace gets this
	// block again, once it is retained. Immutable.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: make a new claim",reason=FieldValueForbidden
	// +optional
	StickyKey string `json:"stickyKey,omitempty"`

	// project is that of the holder's namespace when the block was recorded, whatever
	// becomes of the namespace's label: what limits count. Not set on the record of an
	// IPPool. Immutable.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: make a new claim",reason=FieldValueForbidden
	// +optional
	Project string `json:"project,omitempty"`

	// gateway that was handed out with the address. The pool withholds it while this
	// record is Bound, also after the pool has another one. Not set: the pool had none, the
	// block has more than one address, or the record is from a version that did not note it.
	// +kubebuilder:validation:MaxLength=39
	// +optional
	Gateway string `json:"gateway,omitempty"`

	// requestedBy is the name of the user who created the claim or pool that this
	// block was recorded for, or its first 1,024 characters. Not set where that is
	// not known: for an IPAddressClaim, a pool that waited for its parent, or a claim
	// whose record was made again.
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

	// namespace of a LocalIPPool, whose own record is not beside it. Not set: a
	// claim beside this record, or an IPPool.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// uid of the holder, where it was known.
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// IPAllocation is the record that a block is held: the only truth about what is
// in use. Nobody but the operator makes or changes one; to release a block,
// delete the claim.
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
