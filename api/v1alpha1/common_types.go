package v1alpha1

import "k8s.io/apimachinery/pkg/util/intstr"

// IPFamily is an address family.
// +kubebuilder:validation:Enum=IPv4;IPv6
type IPFamily string

// The address families.
const (
	IPv4 IPFamily = "IPv4"
	IPv6 IPFamily = "IPv6"
)

// Strategy defines which free block of a pool is allocated.
//
// FirstFit: the one with the lowest address. BestFit: from the smallest free
// space that is large enough, which keeps large blocks whole. WorstFit: from
// the largest free space, which spreads blocks and leaves them room to grow.
// Random: any, which makes addresses hard to guess.
// +kubebuilder:validation:Enum=FirstFit;BestFit;WorstFit;Random
type Strategy string

// The strategies.
const (
	StrategyFirstFit Strategy = "FirstFit"
	StrategyBestFit  Strategy = "BestFit"
	StrategyWorstFit Strategy = "WorstFit"
	StrategyRandom   Strategy = "Random"
)

// OnExhaustion defines the handling of a request for which no pool has room.
//
// Wait: it is admitted, waits in the queue, and is bound when a block is free. Reject: its create
// call is refused with HTTP 507 (Insufficient Storage).
// +kubebuilder:validation:Enum=Wait;Reject
type OnExhaustion string

// The handling of a request for which no pool has room.
const (
	OnExhaustionWait   OnExhaustion = "Wait"
	OnExhaustionReject OnExhaustion = "Reject"
)

// ReclaimPolicy defines the handling of a block when its claim is gone.
//
// Delete: it is free again. Retain: it stays held, for the retention period of its class or until a
// user deletes the IPAllocation, and a claim of the same namespace and name gets the same block
// again. The class or the pool must allow it.
// +kubebuilder:validation:Enum=Delete;Retain
type ReclaimPolicy string

// The handling of a block when its claim is gone.
const (
	ReclaimDelete ReclaimPolicy = "Delete"
	ReclaimRetain ReclaimPolicy = "Retain"
)

// Visibility defines which claims can use a pool or a class.
//
// Shared: claims of every namespace. Consumer: claims of namespaces whose project is spec.project.
// Platform: claims of namespaces of the platform's project.
// +kubebuilder:validation:Enum=Shared;Consumer;Platform
type Visibility string

// The visibilities of a pool or a class.
const (
	VisibilityShared   Visibility = "Shared"
	VisibilityConsumer Visibility = "Consumer"
	VisibilityPlatform Visibility = "Platform"
)

// PoolKind is a kind of pool.
type PoolKind string

// The kinds of pools, cluster-scoped and namespaced; and those of Cluster API's in-cluster provider,
// in its API group.
const (
	PoolKindIPPool                PoolKind = "IPPool"
	PoolKindLocalIPPool           PoolKind = "LocalIPPool"
	PoolKindGlobalInClusterIPPool PoolKind = "GlobalInClusterIPPool"
	PoolKindInClusterIPPool       PoolKind = "InClusterIPPool"
)

// PoolReference names a pool. A LocalIPPool is always in the namespace of the object that names it.
type PoolReference struct {
	// kind of the pool: IPPool, or LocalIPPool for a pool of the same namespace. Default: IPPool.
	// +kubebuilder:validation:Enum=IPPool;LocalIPPool
	// +kubebuilder:default=IPPool
	// +optional
	Kind PoolKind `json:"kind,omitempty"`

	// name of the pool.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// Capacity counts the addresses of a pool. The counts are decimal strings,
// because an IPv6 pool has more addresses than 64 bits can count.
//
// total = allocated + available + withheld - outOfRange.
type Capacity struct {
	// total number of addresses in the pool's CIDR.
	// +optional
	Total string `json:"total,omitempty"`

	// allocated is the number of addresses in held blocks.
	// +optional
	Allocated string `json:"allocated,omitempty"`

	// available is the number of addresses that can still be allocated.
	// +optional
	Available string `json:"available,omitempty"`

	// withheld is the number of addresses that are never allocated: reserved ranges, gateway,
	// network and broadcast addresses, and addresses outside ranges.
	// +optional
	Withheld string `json:"withheld,omitempty"`

	// outOfRange is the number of addresses that are both withheld and held: they were allocated
	// before ranges or reserved were edited. They are kept until released, and not allocated again.
	// +optional
	OutOfRange string `json:"outOfRange,omitempty"`
}

// Limits bounds the blocks and addresses that projects hold of a pool, or of all pools of a class.
type Limits struct {
	// perProject limits each project. Default: no limit.
	// +optional
	PerProject *ProjectLimits `json:"perProject,omitempty"`
}

// ProjectLimits limits the blocks and addresses of one project in any state: bound, retained,
// cooling, or recorded and not claimed yet. Of two requests that together exceed a limit, the
// request whose block is recorded later is refused, with any number of replicas.
type ProjectLimits struct {
	// addresses is the number of addresses in all blocks; if it is more than 2147483647, a decimal
	// number as a string. Default: no limit.
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^(0|[1-9][0-9]{0,38})$')",message="must be a decimal number of 0 or more, of up to 39 digits",reason=FieldValueInvalid
	// +optional
	Addresses *intstr.IntOrString `json:"addresses,omitempty"`

	// blocks is the number of blocks. Default: no limit.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Blocks *int64 `json:"blocks,omitempty"`
}
