package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationRequestedBy on an IPClaim or a pool that waited, and on an IPAddressClaim that
// names a pool of another project or one that does not exist yet, is the name of the user that
// created it. The record of an IPClaim states it when a pool has room. If the user is a service
// account, the operator asks again whether it can use the pool that the object names. The operator
// writes the annotation when the object is created; no user can change it.
const AnnotationRequestedBy = "ipam.cadastre.dev/requested-by"

// The labels of IPClaims by which another cluster gets ranges for its pools.
const (
	// LabelHubCluster names the cluster.
	LabelHubCluster = "ipam.cadastre.dev/hub-cluster"
	// LabelHubClass names its IPClass, if that is a valid value of a label.
	LabelHubClass = "ipam.cadastre.dev/hub-class"
)

// For each field that a rule of IPClaimSpec selects, the API server copies the schema of all
// sibling fields. So a rule that needs only one field is at that field.

// IPClaimSpec is the desired state of an IPClaim. All fields except reclaimPolicy and ownerRef are
// immutable; fields that a user leaves out are filled in when the claim is created or bound.
// +kubebuilder:validation:XValidation:rule="has(oldSelf.prefixLength) || !has(self.prefixLength) || !has(self.cidr) || cidr(self.cidr).prefixLength() == self.prefixLength",messageExpression="self.cidr + ' does not have the length that prefixLength sets: remove one of them'",reason=FieldValueInvalid,fieldPath=.cidr
// +kubebuilder:validation:XValidation:rule="has(oldSelf.ipFamily) || !has(self.ipFamily) || !has(self.cidr) || (cidr(self.cidr).ip().family() == 4) == (self.ipFamily == 'IPv4')",messageExpression="self.cidr + ' is not of the ipFamily ' + self.ipFamily + ': remove one of them'",reason=FieldValueInvalid,fieldPath=.cidr
// +kubebuilder:validation:XValidation:rule="(has(oldSelf.ipFamily) && has(oldSelf.prefixLength)) || !has(self.ipFamily) || self.ipFamily == 'IPv6' || !has(self.prefixLength) || self.prefixLength <= 32",message="must be 32 or less for IPv4",reason=FieldValueInvalid,fieldPath=.prefixLength
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.className) ? (!has(self.className) || !(has(oldSelf.poolRef) || has(oldSelf.poolSelector) || has(oldSelf.allocationName))) : (has(self.className) && self.className == oldSelf.className)",message="is immutable: make a new claim",reason=FieldValueForbidden,fieldPath=.className
// +kubebuilder:validation:XValidation:rule="has(self.poolRef) == has(oldSelf.poolRef)",message="is immutable: make a new claim",reason=FieldValueForbidden,fieldPath=.poolRef
// +kubebuilder:validation:XValidation:rule="has(self.poolSelector) == has(oldSelf.poolSelector)",message="is immutable: make a new claim",reason=FieldValueForbidden,fieldPath=.poolSelector
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.ipFamily) || has(self.ipFamily)",message="is immutable once set: make a new claim",reason=FieldValueForbidden,fieldPath=.ipFamily
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.prefixLength) || has(self.prefixLength)",message="is immutable once set: make a new claim",reason=FieldValueForbidden,fieldPath=.prefixLength
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.cidr) || has(self.cidr)",message="is immutable once set: make a new claim",reason=FieldValueForbidden,fieldPath=.cidr
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.allocationName) || has(self.allocationName)",message="is immutable once set: make a new claim",reason=FieldValueForbidden,fieldPath=.allocationName
type IPClaimSpec struct {
	// className names the class that serves this claim. Default, if neither poolRef nor
	// poolSelector is set: the default class of the claim's address family, from
	// ipFamily or cidr, else the operator's --default-ip-family (IPv4). It is filled in when the
	// claim is bound, and then immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ClassName string `json:"className,omitempty"`

	// poolRef names the pool that serves this claim instead of a class: an IPPool, or a LocalIPPool
	// of the claim's namespace.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: make a new claim",reason=FieldValueForbidden
	// +optional
	PoolRef *PoolReference `json:"poolRef,omitempty"`

	// poolSelector selects by their labels the pools that can serve this claim instead of a class:
	// IPPools, and LocalIPPools of the claim's namespace, which come first. A class is the better way
	// in most cases: its pools can change without the claims. At most 16 labels and expressions
	// together.
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) ? size(self.matchLabels) : 0) + (has(self.matchExpressions) ? size(self.matchExpressions) : 0) <= 16",message="may have 16 labels and expressions together: remove some",reason=FieldValueInvalid
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: make a new claim",reason=FieldValueForbidden
	// +optional
	PoolSelector *PoolSelector `json:"poolSelector,omitempty"`

	// ipFamily of the block. Default: that of the class or the pool.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable once set: make a new claim",reason=FieldValueForbidden
	// +optional
	IPFamily IPFamily `json:"ipFamily,omitempty"`

	// prefixLength is the size of the block: 24 for a /24. Bits, 0 to 32 (IPv4) or 128 (IPv6).
	// Default: the class's, or one address if the pool has a network.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable once set: make a new claim",reason=FieldValueForbidden
	// +optional
	PrefixLength *int32 `json:"prefixLength,omitempty"`

	// cidr is the block. If it is empty, the response to the create call has the allocated block,
	// like a Service's clusterIP. Set it to request exactly this block.
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable once set: make a new claim",reason=FieldValueForbidden
	// +optional
	CIDR string `json:"cidr,omitempty"`

	// allocationName is the IPAllocation that records the block, filled in
	// together with cidr. Not for users.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable once set: make a new claim",reason=FieldValueForbidden
	// +optional
	AllocationName string `json:"allocationName,omitempty"`

	// reclaimPolicy defines the handling of the block when this claim is gone. Mutable. Default:
	// the class's, else Delete.
	// +optional
	ReclaimPolicy ReclaimPolicy `json:"reclaimPolicy,omitempty"`

	// ownerRef names the user of the block. It is for information only: the
	// operator does not act on it. Mutable.
	// +optional
	OwnerRef *ClaimOwner `json:"ownerRef,omitempty"`
}

// The bounds of a PoolSelector: the number of its labels and expressions, and of the values of an
// expression.
const (
	MaxSelectorTerms  = 16
	MaxSelectorValues = 64
)

// PoolSelector selects pools by their labels. A pool is selected if it meets all conditions.
// +structType=atomic
type PoolSelector struct {
	// matchLabels are labels that the pool has, with these values.
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) <= 317)",message="has a key that is too long: write the key of a label",reason=FieldValueInvalid
	// +optional
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`

	// matchExpressions are conditions on the labels of the pool.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	MatchExpressions []PoolSelectorExpression `json:"matchExpressions,omitempty"`
}

// LabelValue is the value of a label.
// +kubebuilder:validation:MaxLength=63
type LabelValue string

// PoolSelectorExpression is a condition on one label.
type PoolSelectorExpression struct {
	// key of the label.
	// +kubebuilder:validation:MaxLength=317
	// +required
	Key string `json:"key"`

	// operator relates the label to the values: In, NotIn, Exists or DoesNotExist.
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	// +required
	Operator metav1.LabelSelectorOperator `json:"operator"`

	// values of which the label has one (In) or none (NotIn). Empty for Exists and DoesNotExist.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Values []LabelValue `json:"values,omitempty"`
}

// LabelSelector returns the selector as one of Kubernetes.
func (s *PoolSelector) LabelSelector() *metav1.LabelSelector {
	selector := &metav1.LabelSelector{}
	for key, value := range s.MatchLabels {
		metav1.AddLabelToSelector(selector, key, string(value))
	}
	for _, e := range s.MatchExpressions {
		term := metav1.LabelSelectorRequirement{Key: e.Key, Operator: e.Operator}
		for _, value := range e.Values {
			term.Values = append(term.Values, string(value))
		}
		selector.MatchExpressions = append(selector.MatchExpressions, term)
	}
	return selector
}

// PoolSelectorOf returns a selector of Kubernetes as a PoolSelector.
func PoolSelectorOf(selector *metav1.LabelSelector) *PoolSelector {
	s := &PoolSelector{}
	for key, value := range selector.MatchLabels {
		if s.MatchLabels == nil {
			s.MatchLabels = map[string]LabelValue{}
		}
		s.MatchLabels[key] = LabelValue(value)
	}
	for _, term := range selector.MatchExpressions {
		e := PoolSelectorExpression{Key: term.Key, Operator: term.Operator}
		for _, value := range term.Values {
			e.Values = append(e.Values, LabelValue(value))
		}
		s.MatchExpressions = append(s.MatchExpressions, e)
	}
	return s
}

// ClaimOwner names the user of a block.
type ClaimOwner struct {
	// apiGroup of the user, if it is a Kubernetes object.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	APIGroup string `json:"apiGroup,omitempty"`

	// kind of the user.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Kind string `json:"kind,omitempty"`

	// name of the user.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// ClaimPhase sums up a claim in one word.
// +kubebuilder:validation:Enum=Pending;Bound;Exhausted
type ClaimPhase string

// The phases of a claim.
const (
	ClaimPending   ClaimPhase = "Pending"
	ClaimBound     ClaimPhase = "Bound"
	ClaimExhausted ClaimPhase = "Exhausted"
)

// IPClaimStatus is the observed state of an IPClaim. It is complete in the response to
// the create call. Only the operator writes it.
type IPClaimStatus struct {
	// phase sums up the conditions in one word.
	// +optional
	Phase ClaimPhase `json:"phase,omitempty"`

	// allocatedCIDR is the block that is held for this claim. Not set: none is held, even if
	// spec.cidr requests one.
	// +optional
	AllocatedCIDR string `json:"allocatedCIDR,omitempty"`

	// address is the IP address without length, if the block is a single address.
	// +optional
	Address string `json:"address,omitempty"`

	// network has the settings for a host with the address, as the pool had them when the block was
	// allocated. Not set: the block is more than one address, or its pool has no network.
	// +optional
	Network *ClaimNetwork `json:"network,omitempty"`

	// poolRef is the pool of the block.
	// +optional
	PoolRef *PoolReference `json:"poolRef,omitempty"`

	// boundAllocationRef names the IPAllocation that records the block.
	// +optional
	BoundAllocationRef *AllocationReference `json:"boundAllocationRef,omitempty"`

	// candidates are the pools that this claim can use while it waits, and why it was not served
	// from each when the operator last tried. Pools that were tried come first, then pools that
	// cannot serve it in their current state; LocalIPPools before IPPools, and by name. Pools that
	// the claim's namespace cannot use are never listed. At most 10. Not set: the claim is Bound,
	// or does not wait for a pool.
	//
	// In the answer to a dry run (kubectl create --dry-run=server) they are also set if the claim
	// would be bound, and have the free space of each pool.
	// +kubebuilder:validation:MaxItems=10
	// +listType=atomic
	// +optional
	Candidates []CandidatePool `json:"candidates,omitempty"`

	// candidatesOmitted is the number of further pools that the claim can use and candidates does
	// not list.
	// +kubebuilder:validation:Minimum=0
	// +optional
	CandidatesOmitted int32 `json:"candidatesOmitted,omitempty"`

	// conditions of the claim: Ready, and the one of Pending, Bound and Exhausted that is True.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// CandidatePool is a pool that a claim can use, with the reason why the claim is not served from
// it.
type CandidatePool struct {
	// poolRef is the pool.
	// +required
	PoolRef PoolReference `json:"poolRef"`

	// reason states in one word why the claim is not served from the pool: NoFreeBlock, OutOfTurn,
	// InUse, Withheld, LimitReached, CannotFit, FamilyMismatch, LocalPoolNotAllowed, OutsidePool,
	// LengthNotAllowed, RetainNotAllowed, NotReady, Paused, Terminating; or Fits, in the answer to
	// a dry run. Later versions may have others.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Reason CandidateReason `json:"reason"`

	// message states the reason in a sentence, with the wrong value. Not set: the claim fits.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Message string `json:"message,omitempty"`

	// largestFreePrefix is the prefix length of the largest free block, such as "/20". Only in the
	// answer to a dry run, and never stored, because it changes with every claim. Not set there: no
	// block is free.
	// +kubebuilder:validation:MaxLength=4
	// +optional
	LargestFreePrefix string `json:"largestFreePrefix,omitempty"`

	// available is the number of addresses of the pool that can still be allocated, a decimal
	// string. Only in the answer to a dry run, and never stored, because it changes with every
	// claim.
	// +kubebuilder:validation:MaxLength=39
	// +optional
	Available string `json:"available,omitempty"`
}

// ClaimNetwork holds the settings for a host with an address.
type ClaimNetwork struct {
	// prefixLength of the subnet. Bits.
	// +required
	PrefixLength int32 `json:"prefixLength"`

	// gateway of the subnet: an IP address. Not set: the subnet has none.
	// +optional
	Gateway string `json:"gateway,omitempty"`

	HostSettings `json:",inline"`
}

// AllocationReference names an IPAllocation in the claim's namespace.
type AllocationReference struct {
	// name of the IPAllocation.
	// +required
	Name string `json:"name"`
}

// IPClaim is a request for a block of addresses. The response to the create call is complete: it
// has the block and the status. status.allocatedCIDR is the held block; spec.cidr of a claim that
// is not Bound is only a request.
//
// IPClaim has no status subresource, so that admission can write the status with the claim. With a
// ValidatingAdmissionPolicy, only the operator can change the status.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=ipclaim,categories=cadastre
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=`.spec.className`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.status.poolRef.name`
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=`.status.allocatedCIDR`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:selectablefield:JSONPath=`.spec.className`
// +kubebuilder:selectablefield:JSONPath=`.spec.poolRef.name`
// +kubebuilder:selectablefield:JSONPath=`.spec.cidr`
// +kubebuilder:selectablefield:JSONPath=`.spec.allocationName`
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
type IPClaim struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec IPClaimSpec `json:"spec"`
	// +optional
	Status IPClaimStatus `json:"status,omitempty"`
}

// IPClaimList is a list of IPClaims.
// +kubebuilder:object:root=true
type IPClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPClaim `json:"items"`
}
