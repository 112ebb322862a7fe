package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PoolSpec holds the fields of every kind of pool: its space, and the rules for its allocation.
// +kubebuilder:validation:XValidation:rule="has(self.cidr) || has(self.parentRef)",message="a root pool needs a cidr, a child pool a parentRef: set one of them",reason=FieldValueRequired,fieldPath=.cidr
// +kubebuilder:validation:XValidation:rule="!has(self.parentRef) || has(self.prefixLength) || has(self.cidr)",message="a child pool needs a prefixLength: set it to the length of its block of the parent",reason=FieldValueRequired,fieldPath=.prefixLength
// +kubebuilder:validation:XValidation:rule="!has(self.prefixLength) || has(self.parentRef)",message="is for child pools only, a root pool has the length of its cidr: remove it, or set parentRef",reason=FieldValueForbidden,fieldPath=.prefixLength
// +kubebuilder:validation:XValidation:rule="!has(self.routingDomain) || !has(self.parentRef)",message="is for root pools only, a child lives in its parent: remove it, or remove parentRef",reason=FieldValueForbidden,fieldPath=.routingDomain
// +kubebuilder:validation:XValidation:rule="!has(self.cidr) || !isCIDR(self.cidr) || !has(self.prefixLength) || cidr(self.cidr).prefixLength() == self.prefixLength",messageExpression="self.cidr + ' does not have the length that prefixLength sets: remove one of them'",reason=FieldValueInvalid,fieldPath=.cidr
// +kubebuilder:validation:XValidation:rule="!has(self.cidr) || !isCIDR(self.cidr) || !has(self.ipFamily) || (cidr(self.cidr).ip().family() == 4) == (self.ipFamily == 'IPv4')",messageExpression="self.ipFamily + ' is not the family of the cidr ' + self.cidr + ': remove it, it is derived'",reason=FieldValueInvalid,fieldPath=.ipFamily
// +kubebuilder:validation:XValidation:rule="!has(self.ipFamily) || self.ipFamily == 'IPv6' || !has(self.prefixLength) || self.prefixLength <= 32",message="must be 32 or less in an IPv4 pool",reason=FieldValueInvalid,fieldPath=.prefixLength
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.cidr) || (has(self.cidr) && self.cidr == oldSelf.cidr)",message="is immutable once set: make a new pool",reason=FieldValueForbidden,fieldPath=.cidr
// +kubebuilder:validation:XValidation:rule="has(self.parentRef) == has(oldSelf.parentRef) && (!has(self.parentRef) || self.parentRef == oldSelf.parentRef)",message="is immutable: make a new pool",reason=FieldValueForbidden,fieldPath=.parentRef
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.prefixLength) || (has(self.prefixLength) && self.prefixLength == oldSelf.prefixLength)",message="is immutable: make a new pool",reason=FieldValueForbidden,fieldPath=.prefixLength
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.ipFamily) || (has(self.ipFamily) && self.ipFamily == oldSelf.ipFamily)",message="is immutable: make a new pool",reason=FieldValueForbidden,fieldPath=.ipFamily
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.routingDomain) || (has(self.routingDomain) && self.routingDomain == oldSelf.routingDomain)",message="is immutable: make a new pool",reason=FieldValueForbidden,fieldPath=.routingDomain
// +kubebuilder:validation:XValidation:rule="has(self.network) == has(oldSelf.network)",message="is immutable: make a new pool",reason=FieldValueForbidden,fieldPath=.network
// +kubebuilder:validation:XValidation:rule="(has(self.occupies) ? self.occupies : 'CIDR') == (has(oldSelf.occupies) ? oldSelf.occupies : 'CIDR')",message="is immutable: make a new pool",reason=FieldValueForbidden,fieldPath=.occupies
// +kubebuilder:validation:XValidation:rule="!has(self.occupies) || self.occupies != 'Ranges' || has(self.cidr)",message="a pool that occupies its ranges needs the subnet in which they lie: set cidr",reason=FieldValueRequired,fieldPath=.cidr
// +kubebuilder:validation:XValidation:rule="!has(self.occupies) || self.occupies != 'Ranges' || (has(self.ranges) && size(self.ranges) > 0)",message="a pool that occupies its ranges needs at least one: set ranges, or leave out occupies",reason=FieldValueRequired,fieldPath=.ranges
// +kubebuilder:validation:XValidation:rule="!has(self.occupies) || self.occupies != 'Ranges' || !has(self.prefixLength)",message="is not for a pool that occupies its ranges: remove it, and set cidr",reason=FieldValueForbidden,fieldPath=.prefixLength
type PoolSpec struct {
	// cidr is the space of the pool, in canonical form with no host bits set (10.0.0.0/8,
	// 2001:db8::/32). Required for a root pool; for a child pool the block of its parent,
	// requested, or filled in when the pool is created. Immutable once set.
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",messageExpression="'\"' + self + '\" is not a CIDR: write an address and a prefix length, such as 10.0.0.0/8 or 2001:db8::/32'",reason=FieldValueInvalid
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",message="has host bits set: write the first address of the block, such as 10.0.0.0/24 and not 10.0.0.1/24",reason=FieldValueInvalid
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || ip.isCanonical(self.substring(0, self.indexOf('/')))",message="is not in canonical form: write IPv6 in lower case, with the longest run of zeros as ::, as RFC 5952 specifies",reason=FieldValueInvalid
	// +optional
	CIDR string `json:"cidr,omitempty"`

	// parentRef names the pool of which this pool is a block, and makes it a child pool. The parent
	// of an IPPool is an IPPool; that of a LocalIPPool is an IPPool that its creator can use, or a
	// LocalIPPool of the same namespace. Immutable.
	// +optional
	ParentRef *PoolReference `json:"parentRef,omitempty"`

	// prefixLength is the size of a child pool: 24 requests a /24 from the parent. Bits, 0 to 32
	// (IPv4) or 128 (IPv6). Immutable. Default: that of cidr.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	// +optional
	PrefixLength *int32 `json:"prefixLength,omitempty"`

	// ipFamily of the pool's addresses. Immutable. Default: that of cidr, or
	// of the parent.
	// +optional
	IPFamily IPFamily `json:"ipFamily,omitempty"`

	// routingDomain is the name space in which the CIDRs of two root pools cannot overlap (a VRF).
	// The domains of LocalIPPools are separate for each namespace. Root pools only. Immutable.
	// Default: default.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +optional
	RoutingDomain string `json:"routingDomain,omitempty"`

	// classNames are the classes that this pool backs; a LocalIPPool backs only classes with
	// allowLocalPools. Mutable: a change applies to new claims and moves no block.
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	// +optional
	ClassNames []string `json:"classNames,omitempty"`

	// occupies defines what the pool holds of its parent or routing domain: all of its cidr, or only
	// its ranges. With Ranges, cidr is the subnet, other pools can have the rest of it, and the
	// ranges make at most 64 CIDR blocks. Immutable. Default: CIDR.
	// +optional
	Occupies PoolOccupies `json:"occupies,omitempty"`

	// ranges restricts allocation to addresses inside one of its entries. Each is a range
	// (10.0.0.10-10.0.0.20), a CIDR or a single address, inside cidr. Default: all of cidr.
	// Mutable: used blocks that an edit excludes are kept until they are released. If the pool
	// occupies its ranges, addresses that an edit adds are allocated when no other pool has them.
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=91
	// +kubebuilder:validation:XValidation:rule="self.all(r, isIP(r) || isCIDR(r) || (r.indexOf('-') > 0 && isIP(r.substring(0, r.indexOf('-'))) && isIP(r.substring(r.indexOf('-') + 1))))",message="has an entry that cannot be read: write each as a range of two addresses (10.0.0.10-10.0.0.20), a CIDR (10.0.0.16/28) or a single address",reason=FieldValueInvalid
	// +listType=atomic
	// +optional
	Ranges []string `json:"ranges,omitempty"`

	// reserved addresses are never allocated; same syntax as ranges. Mutable: used blocks that an
	// edit reserves are kept until they are released.
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=91
	// +kubebuilder:validation:XValidation:rule="self.all(r, isIP(r) || isCIDR(r) || (r.indexOf('-') > 0 && isIP(r.substring(0, r.indexOf('-'))) && isIP(r.substring(r.indexOf('-') + 1))))",message="has an entry that cannot be read: write each as a range of two addresses (10.0.0.10-10.0.0.20), a CIDR (10.0.0.16/28) or a single address",reason=FieldValueInvalid
	// +listType=atomic
	// +optional
	Reserved []string `json:"reserved,omitempty"`

	// network makes this a pool of host addresses of a subnet. Not set: plain address space, of
	// which every address can be used. Immutable, except for its fields that are documented as
	// mutable.
	// +optional
	Network *PoolNetwork `json:"network,omitempty"`

	// allocation bounds the length of blocks, and defines the order of allocation. Mutable.
	// +optional
	Allocation *PoolAllocation `json:"allocation,omitempty"`

	// onExhaustion defines the handling of claims for which no pool has room, if their class does
	// not set it. Mutable. Default: Wait.
	// +optional
	OnExhaustion OnExhaustion `json:"onExhaustion,omitempty"`

	// reuseDelay is the time before a released block is allocated again, if the class does not set
	// it. Mutable. Default: none.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative: leave it out for none",reason=FieldValueInvalid
	// +optional
	ReuseDelay *metav1.Duration `json:"reuseDelay,omitempty"`

	// limits bounds the blocks and addresses that one project holds of this pool. Mutable: it is
	// checked when a block is recorded, and releases no blocks. Default: none.
	// +optional
	Limits *Limits `json:"limits,omitempty"`

	// allowRetain allows claims that name this pool, and no class, to request reclaimPolicy Retain
	// or a sticky address. Mutable: it is checked when a claim is created, or requests it. Default:
	// false.
	// +optional
	AllowRetain bool `json:"allowRetain,omitempty"`

	// retentionPeriod is the longest time for which a retained block is kept, if the class does not
	// set it. Mutable: a change applies to blocks that are retained later. Default: 720h; for a
	// sticky block 1h.
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be more than 0: leave it out for the default",reason=FieldValueInvalid
	// +optional
	RetentionPeriod *metav1.Duration `json:"retentionPeriod,omitempty"`
}

// PoolOccupies defines what a pool holds of its parent or routing domain.
// +kubebuilder:validation:Enum=CIDR;Ranges
type PoolOccupies string

// What a pool holds: all of its CIDR, or its ranges alone.
const (
	OccupiesCIDR   PoolOccupies = "CIDR"
	OccupiesRanges PoolOccupies = "Ranges"
)

// PoolNetwork describes the subnet to which the addresses of a pool belong.
type PoolNetwork struct {
	// prefixLength of the subnet, as it is configured on hosts. Bits, not longer than that of the
	// pool's CIDR; or 32 (IPv4) or 128 (IPv6), if each address is a separate subnet. Immutable.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: make a new pool",reason=FieldValueForbidden
	// +required
	PrefixLength int32 `json:"prefixLength"`

	// gateway of the subnet: one of its addresses, which is withheld, other than the network and
	// broadcast address of IPv4; or in IPv6 a link-local address (fe80::1). If each address is a
	// separate subnet, any address of the family, on the link. Mutable: a held address keeps the
	// gateway with which it was allocated, and that gateway stays withheld until the address is
	// released. Default: none.
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self)",messageExpression="'\"' + self + '\" is not an IP address in canonical form: write one such as 10.0.0.1 or 2001:db8::1'",reason=FieldValueInvalid
	// +optional
	Gateway string `json:"gateway,omitempty"`

	// allocateEdgeAddresses allows the allocation of the network and broadcast address (IPv4) or
	// the subnet-router anycast address (IPv6). Subnets of length 31, 32, 127 and 128 have none
	// (RFC 3021, RFC 6164). Mutable. Default: false.
	// +optional
	AllocateEdgeAddresses bool `json:"allocateEdgeAddresses,omitempty"`

	HostSettings `json:",inline"`
}

// HostSettings are copied to the claims that get an address of a subnet; the operator does not use
// them. All of them are mutable: a change applies to addresses that are allocated later.
type HostSettings struct {
	// dnsServers are the IP addresses of the name servers, in order of preference. They can be
	// outside the subnet, and of the other family. Default: none.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=39
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) && ip.isCanonical(self)",messageExpression="'\"' + self + '\" is not an IP address in canonical form: write one such as 10.0.0.1 or 2001:db8::1'",reason=FieldValueInvalid
	// +listType=atomic
	// +optional
	DNSServers []string `json:"dnsServers,omitempty"`

	// searchDomains are searched for names that are not fully qualified, in that order.
	// Default: none.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$`
	// +listType=atomic
	// +optional
	SearchDomains []string `json:"searchDomains,omitempty"`

	// mtu is the size of the largest packet on the link. Bytes, at least 68 in IPv4 (RFC
	// 791) and 1280 in IPv6 (RFC 8200 section 5). Default: not set.
	// +kubebuilder:validation:Minimum=68
	// +kubebuilder:validation:Maximum=65535
	// +optional
	MTU int32 `json:"mtu,omitempty"`

	// vlan is the identifier of the VLAN that the link is tagged with (IEEE 802.1Q).
	// Default: not set.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	// +optional
	VLAN int32 `json:"vlan,omitempty"`
}

// PoolAllocation bounds the length of a pool's blocks, and defines the order of allocation.
// +kubebuilder:validation:XValidation:rule="!has(self.minPrefixLength) || !has(self.maxPrefixLength) || self.minPrefixLength <= self.maxPrefixLength",message="minPrefixLength must not be greater than maxPrefixLength: swap them",reason=FieldValueInvalid,fieldPath=.minPrefixLength
type PoolAllocation struct {
	// minPrefixLength is the shortest prefix, that is the largest block, of an allocation. Bits.
	// Default: that of the pool's CIDR.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	// +optional
	MinPrefixLength *int32 `json:"minPrefixLength,omitempty"`

	// maxPrefixLength is the longest prefix, that is the smallest block, of an allocation. Bits.
	// Default: 32 (IPv4) or 128 (IPv6).
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	// +optional
	MaxPrefixLength *int32 `json:"maxPrefixLength,omitempty"`

	// strategy defines which free block is allocated, if the class does not set it. Default:
	// FirstFit.
	// +optional
	Strategy Strategy `json:"strategy,omitempty"`
}

// IPPoolSpec is the desired state of an IPPool.
// +kubebuilder:validation:XValidation:rule="!has(self.parentRef) || !has(self.parentRef.kind) || self.parentRef.kind == 'IPPool'",message="a cluster-scoped pool cannot be part of a LocalIPPool: name an IPPool",reason=FieldValueInvalid,fieldPath=.parentRef.kind
// +kubebuilder:validation:XValidation:rule="!has(self.visibility) || self.visibility != 'Consumer' || has(self.project)",message="visibility Consumer needs a project: set the one whose claims may use it",reason=FieldValueRequired,fieldPath=.project
type IPPoolSpec struct {
	PoolSpec `json:",inline"`

	// visibility defines which claims can use this pool. Mutable. Default: Shared.
	// +kubebuilder:default=Shared
	// +optional
	Visibility Visibility `json:"visibility,omitempty"`

	// project to which the pool belongs: the value of a Namespace's label
	// ipam.cadastre.dev/project; a namespace's name counts only if no namespace has the label.
	// Mutable. Default: none, the pool belongs to the platform.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Project string `json:"project,omitempty"`
}

// PoolPhase sums up a pool in one word.
//
// Pending: its CIDR is not recorded. Ready: it allocates blocks. Exhausted: no address is free.
// Paused: an annotation pauses allocation. Terminating: it is being deleted.
// +kubebuilder:validation:Enum=Pending;Ready;Exhausted;Paused;Terminating
type PoolPhase string

// The phases of a pool.
const (
	PoolPending     PoolPhase = "Pending"
	PoolReady       PoolPhase = "Ready"
	PoolExhausted   PoolPhase = "Exhausted"
	PoolPaused      PoolPhase = "Paused"
	PoolTerminating PoolPhase = "Terminating"
)

// PoolStatus is the observed state of a pool of any kind. It is written at most
// once a second.
type PoolStatus struct {
	// observedGeneration is the generation of the spec from which this status was computed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase sums up the conditions in one word.
	// +optional
	Phase PoolPhase `json:"phase,omitempty"`

	// allocatedCIDR is the space that is recorded for this pool; its cidr if it occupies ranges of
	// that.
	// +optional
	AllocatedCIDR string `json:"allocatedCIDR,omitempty"`

	// ipFamily of the pool's addresses.
	// +optional
	IPFamily IPFamily `json:"ipFamily,omitempty"`

	// capacity counts the pool's addresses.
	// +optional
	Capacity *Capacity `json:"capacity,omitempty"`

	// allocations is the number of held blocks, including child pools.
	// +kubebuilder:default=0
	// +optional
	Allocations int64 `json:"allocations"`

	// utilizationPercent is the share of held addresses among those that are held or can still be
	// allocated: 0 only if none is held, 100 only if none is free.
	// +kubebuilder:default=0
	// +optional
	UtilizationPercent int32 `json:"utilizationPercent"`

	// largestFreePrefix is the length of the largest free block, such as /20. Not set: no block is
	// free.
	// +optional
	LargestFreePrefix string `json:"largestFreePrefix,omitempty"`

	// firstReadyTime is the time at which the pool was first ready. Claims that requested a
	// particular block before are served first, as after a restore; a later pause does not change
	// it.
	// +optional
	FirstReadyTime *metav1.Time `json:"firstReadyTime,omitempty"`

	// formerGateways are addresses that the pool withholds although it has another gateway, because
	// held addresses were allocated with them. The first 16.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	FormerGateways []string `json:"formerGateways,omitempty"`

	// conditions of the pool: Ready, Allocated, Exhausted.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// IPPool is one CIDR from which blocks are allocated. A root pool states its CIDR; a child pool is
// a block of its parent. The annotation ipam.cadastre.dev/paused or cluster.x-k8s.io/paused, with
// any value, including "false", pauses allocation; releases continue. Remove the annotation to end
// the pause.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=ippool,categories=cadastre
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name="Parent",type=string,JSONPath=`.spec.parentRef.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Allocations",type=integer,JSONPath=`.status.allocations`
// +kubebuilder:printcolumn:name="Used%",type=integer,JSONPath=`.status.utilizationPercent`
// +kubebuilder:printcolumn:name="Largest Free",type=string,JSONPath=`.status.largestFreePrefix`
// +kubebuilder:printcolumn:name="Domain",type=string,priority=1,JSONPath=`.spec.routingDomain`
// +kubebuilder:printcolumn:name="Available",type=string,priority=1,JSONPath=`.status.capacity.available`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.cidr`
// +kubebuilder:selectablefield:JSONPath=`.spec.parentRef.name`
type IPPool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec IPPoolSpec `json:"spec"`
	// +optional
	Status PoolStatus `json:"status,omitempty"`
}

// IPPoolList is a list of IPPools.
// +kubebuilder:object:root=true
type IPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPPool `json:"items"`
}
