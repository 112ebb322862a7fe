package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NativeProvisioner is the provisioner of classes for which no program makes pools.
const NativeProvisioner = "ipam.cadastre.dev/native"

// AnnotationDefaultClass on an IPClass, with the value "true", makes it the class of claims that
// name none. At most one class for each address family.
const AnnotationDefaultClass = "ipam.cadastre.dev/is-default-class"

// AnnotationReplacesDefault on an IPClass that becomes the default names the default class of the
// same address family that it replaces. Both can have the annotation of the default at the same
// time; then this class is the default, regardless of its age. So one write switches the default,
// and a default always exists. The annotation has no effect when the other class is no longer the
// default.
const AnnotationReplacesDefault = "ipam.cadastre.dev/replaces-default"

// PoolSelection defines which pool of a class serves a claim: the first with room in order of name,
// or the least or most utilized one.
// +kubebuilder:validation:Enum=FirstFit;LeastUtilized;MostUtilized
type PoolSelection string

// The selections of the pool that serves a claim.
const (
	SelectFirstFit      PoolSelection = "FirstFit"
	SelectLeastUtilized PoolSelection = "LeastUtilized"
	SelectMostUtilized  PoolSelection = "MostUtilized"
)

// PrefixLengthBounds bounds the length of blocks, both ends included.
// +kubebuilder:validation:XValidation:rule="!has(self.min) || !has(self.max) || self.min <= self.max",message="must not be greater than max: swap them",reason=FieldValueInvalid,fieldPath=.min
type PrefixLengthBounds struct {
	// min is the shortest prefix, that is the largest block. Bits. Default: 0.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	// +optional
	Min *int32 `json:"min,omitempty"`

	// max is the longest prefix, that is the smallest block. Bits. Default: 32
	// (IPv4) or 128 (IPv6).
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	// +optional
	Max *int32 `json:"max,omitempty"`
}

// IPClassSpec is the desired state of an IPClass.
// +kubebuilder:validation:XValidation:rule="self.ipFamily == 'IPv6' || !has(self.defaultPrefixLength) || self.defaultPrefixLength <= 32",message="must be 32 or less in an IPv4 class",reason=FieldValueInvalid,fieldPath=.defaultPrefixLength
// +kubebuilder:validation:XValidation:rule="self.ipFamily == 'IPv6' || !has(self.allowedPrefixLengths) || !has(self.allowedPrefixLengths.min) || self.allowedPrefixLengths.min <= 32",message="must be 32 or less in an IPv4 class",reason=FieldValueInvalid,fieldPath=.allowedPrefixLengths.min
// +kubebuilder:validation:XValidation:rule="self.ipFamily == 'IPv6' || !has(self.allowedPrefixLengths) || !has(self.allowedPrefixLengths.max) || self.allowedPrefixLengths.max <= 32",message="must be 32 or less in an IPv4 class",reason=FieldValueInvalid,fieldPath=.allowedPrefixLengths.max
// +kubebuilder:validation:XValidation:rule="!has(self.defaultPrefixLength) || !has(self.allowedPrefixLengths) || ((!has(self.allowedPrefixLengths.min) || self.defaultPrefixLength >= self.allowedPrefixLengths.min) && (!has(self.allowedPrefixLengths.max) || self.defaultPrefixLength <= self.allowedPrefixLengths.max))",message="must lie within allowedPrefixLengths: change one of them",reason=FieldValueInvalid,fieldPath=.defaultPrefixLength
// +kubebuilder:validation:XValidation:rule="!has(self.allowRetain) || self.allowRetain || !has(self.reclaimPolicy) || self.reclaimPolicy != 'Retain'",message="must not be false where reclaimPolicy is Retain: remove one of them",reason=FieldValueInvalid,fieldPath=.allowRetain
// +kubebuilder:validation:XValidation:rule="!has(self.visibility) || self.visibility != 'Consumer' || has(self.project)",message="visibility Consumer needs a project: set the one whose claims may use it",reason=FieldValueRequired,fieldPath=.project
type IPClassSpec struct {
	// provisioner is the program that makes the pools of this class when its claims wait for one.
	// Cadastre serves the claims from those pools. With the default, pools are made by other means.
	// Immutable. Default: ipam.cadastre.dev/native.
	// +kubebuilder:default="ipam.cadastre.dev/native"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: make a new class",reason=FieldValueForbidden
	// +optional
	Provisioner string `json:"provisioner,omitempty"`

	// parameters for the provisioner. Mutable.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	Parameters map[string]string `json:"parameters,omitempty"`

	// ipFamily of the blocks of this class. Immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: make a new class",reason=FieldValueForbidden
	// +required
	IPFamily IPFamily `json:"ipFamily"`

	// poolSelection defines which pool serves a claim. Mutable. Default: FirstFit, in order of
	// name.
	// +kubebuilder:default=FirstFit
	// +optional
	PoolSelection PoolSelection `json:"poolSelection,omitempty"`

	// strategy defines which free block of the pool is allocated. Mutable. Default: the strategy of
	// the pool.
	// +optional
	Strategy Strategy `json:"strategy,omitempty"`

	// allowedPrefixLengths bounds the length of blocks that claims can request. Mutable: a change
	// applies to new claims. Default: the bounds of the pools.
	// +optional
	AllowedPrefixLengths *PrefixLengthBounds `json:"allowedPrefixLengths,omitempty"`

	// defaultPrefixLength is the prefix length of claims that set none. Bits. Mutable. Default:
	// none, a claim must set it unless all its pools have a network.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	// +optional
	DefaultPrefixLength *int32 `json:"defaultPrefixLength,omitempty"`

	// reclaimPolicy defines the handling of a block when its claim is gone, if the claim does not
	// set it. Mutable: it is written into claims when they are created. Default: Delete.
	// +kubebuilder:default=Delete
	// +optional
	ReclaimPolicy ReclaimPolicy `json:"reclaimPolicy,omitempty"`

	// allowRetain allows claims of this class to request reclaimPolicy Retain or a sticky address.
	// Mutable: it is checked when a claim is created, or requests it. Default: true if
	// reclaimPolicy is Retain, else false.
	// +optional
	AllowRetain *bool `json:"allowRetain,omitempty"`

	// retentionPeriod is the longest time for which a retained block is kept. Mutable: a change
	// applies to blocks that are retained later. Default: that of the pool, else 720h; for a sticky
	// block 1h.
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be more than 0: leave it out for the default",reason=FieldValueInvalid
	// +optional
	RetentionPeriod *metav1.Duration `json:"retentionPeriod,omitempty"`

	// reuseDelay is the time before a released block is allocated again. Mutable. Default: that of
	// the pool.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative: leave it out for none",reason=FieldValueInvalid
	// +optional
	ReuseDelay *metav1.Duration `json:"reuseDelay,omitempty"`

	// onExhaustion defines the handling of claims for which no pool has room. Mutable. Default:
	// that of the pool.
	// +optional
	OnExhaustion OnExhaustion `json:"onExhaustion,omitempty"`

	// limits bounds the blocks and addresses that one project holds of this class, over all its
	// pools. Mutable: it is checked when a block is recorded, and releases no blocks. Default:
	// none.
	// +optional
	Limits *Limits `json:"limits,omitempty"`

	// allowLocalPools allows LocalIPPools to back this class, with addresses that each namespace
	// chooses. If it is false, claims of the class get addresses only of IPPools, even if
	// LocalIPPools have the class in their classNames. Mutable: a change applies to new claims and
	// moves no block. Default: false.
	// +optional
	AllowLocalPools bool `json:"allowLocalPools,omitempty"`

	// visibility defines which claims can use this class. Mutable. Default: Shared.
	// +kubebuilder:default=Shared
	// +optional
	Visibility Visibility `json:"visibility,omitempty"`

	// project to which the class belongs: the value of a Namespace's label
	// ipam.cadastre.dev/project; a namespace's name counts only if no namespace has the label.
	// Mutable. Default: none, the class belongs to the platform.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Project string `json:"project,omitempty"`
}

// ClassDemand counts the claims that wait for a block of one length.
type ClassDemand struct {
	// prefixLength of the block. Bits.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	// +required
	PrefixLength int32 `json:"prefixLength"`
	// claims is the number of claims that wait.
	// +kubebuilder:validation:Minimum=1
	// +required
	Claims int32 `json:"claims"`
}

// IPClassStatus is the observed state of an IPClass.
type IPClassStatus struct {
	// observedGeneration is the generation of the spec from which this status was computed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// pools is the number of IPPools that back this class. LocalIPPools are not counted: they are
	// private to their namespaces.
	// +kubebuilder:default=0
	// +optional
	Pools int32 `json:"pools"`

	// capacity is the sum of the capacities of these pools.
	// +optional
	Capacity *Capacity `json:"capacity,omitempty"`

	// demand lists the blocks for which claims of this class wait, by prefix length, if the class has a
	// provisioner. Claims that another pool would not serve are not counted: those that ask for one
	// block, are beyond a limit, or have been refused. It is updated at most once a second.
	// +kubebuilder:validation:MaxItems=129
	// +listType=map
	// +listMapKey=prefixLength
	// +optional
	Demand []ClassDemand `json:"demand,omitempty"`
	// conditions of the class: Ready.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// IPClass is the policy for a kind of address space, as a StorageClass is for volumes. A claim that
// names a class need not name a pool.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=ipclass,categories=cadastre
// +kubebuilder:printcolumn:name="Family",type=string,JSONPath=`.spec.ipFamily`
// +kubebuilder:printcolumn:name="Default Length",type=integer,JSONPath=`.spec.defaultPrefixLength`
// +kubebuilder:printcolumn:name="Reclaim",type=string,JSONPath=`.spec.reclaimPolicy`
// +kubebuilder:printcolumn:name="Pools",type=integer,JSONPath=`.status.pools`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.capacity.available`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Provisioner",type=string,priority=1,JSONPath=`.spec.provisioner`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.ipFamily`
type IPClass struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec IPClassSpec `json:"spec"`
	// +optional
	Status IPClassStatus `json:"status,omitempty"`
}

// IPClassList is a list of IPClasses.
// +kubebuilder:object:root=true
type IPClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPClass `json:"items"`
}
