package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Conditions. An IPClaim has one of Pending, Bound and Exhausted, the one that is True: a missing
// condition is not true.
//
// Each comment lists the reasons of the condition, by kind and status, in lines that
// `make docs` reads.
const (
	// ConditionReady is True when the object is ready for use. A claim is ready if it is Bound, unless
	// another claim's record overlaps the block: then the reason is Conflict.
	//
	//	IPClaim, True: Bound
	//	IPClaim, False: ClassNotFound, NoDefaultClass, PoolNotFound, PoolNotReady, NoPoolForClass, PolicyViolation, CannotFit, WaitingForProvisioner, Conflict, LimitReached, RecordRefused, TooManyWaiting, NotServed, PoolExhausted
	//	IPPool, LocalIPPool, True: Ready, Full
	//	IPPool, LocalIPPool, False: ParentNotReady, PoolExhausted, CannotFit, Invalid, Conflict, RecordRefused, LimitReached, Paused, ProviderRunning, Terminating
	//	IPClass, True: Ready, NoPools
	//	IPClass, False: NotDefault
	//	IPAddressClaim, True: AddressAllocated
	//	IPAddressClaim, False: PoolExhausted, PoolNotFound, PoolNotReady, ClusterNotFound, Paused, AllocationFailed, LimitReached, RecordRefused, TooManyWaiting
	ConditionReady = "Ready"

	// ConditionPending is True while an object that the claim needs is missing or not ready. No
	// block is held for the claim.
	//
	//	IPClaim, True: ClassNotFound, NoDefaultClass, PoolNotFound, PoolNotReady, NoPoolForClass, PolicyViolation, CannotFit, WaitingForProvisioner, Conflict, LimitReached, RecordRefused, TooManyWaiting, NotServed
	ConditionPending = "Pending"

	// ConditionBound is True when a block is held for the claim.
	//
	//	IPClaim, True: Bound
	ConditionBound = "Bound"

	// ConditionExhausted is True when no pool that the claim can use has a free block of the
	// requested length. The claim is bound when a block is released. On a pool: no address is free.
	//
	//	IPClaim, True: PoolExhausted
	//	IPPool, LocalIPPool, True: PoolExhausted
	//	IPPool, LocalIPPool, False: HasRoom
	ConditionExhausted = "Exhausted"

	// ConditionAllocated is True when the pool's own CIDR is recorded, in its parent or in its
	// routing domain, and no other record overlaps it there.
	//
	//	IPPool, LocalIPPool, True: Recorded
	//	IPPool, LocalIPPool, False: ParentNotReady, PoolExhausted, CannotFit, Invalid, Conflict, RecordRefused, LimitReached
	ConditionAllocated = "Allocated"
)

// Reasons of conditions.
const (
	// ReasonBound: a block is held for the claim.
	ReasonBound = "Bound"
	// ReasonPoolExhausted: no pool that can serve the claim has a free block of that length; on a
	// pool: no address is free.
	ReasonPoolExhausted = "PoolExhausted"
	// ReasonHasRoom: the pool has free addresses.
	ReasonHasRoom = "HasRoom"
	// ReasonClassNotFound: no class of that name exists that the claim can use.
	ReasonClassNotFound = "ClassNotFound"
	// ReasonNoDefaultClass: the claim names no class, and no default class exists.
	ReasonNoDefaultClass = "NoDefaultClass"
	// ReasonPoolNotFound: no pool of that name exists that the claim can use.
	ReasonPoolNotFound = "PoolNotFound"
	// ReasonPoolNotReady: the pool that the claim names is not ready.
	ReasonPoolNotReady = "PoolNotReady"
	// ReasonNoPoolForClass: no pool that is ready backs the class.
	ReasonNoPoolForClass = "NoPoolForClass"
	// ReasonPolicyViolation: the class or the pool was created after the claim, and does not allow
	// its request.
	ReasonPolicyViolation = "PolicyViolation"
	// ReasonCannotFit: no eligible pool, or no parent, has a block of that length even when it is
	// empty: its ranges and reserved addresses leave only smaller blocks. A released block does not
	// help; request a smaller block, or change the spec of the pool.
	ReasonCannotFit = "CannotFit"
	// ReasonWaitingForProvisioner: no pool of the class has room, and its provisioner makes another one.
	// The claim is bound when that pool is ready, or a block is released.
	ReasonWaitingForProvisioner = "WaitingForProvisioner"
	// ReasonConflict: the block has another holder, or, if the claim is bound, a second holder.
	ReasonConflict = "Conflict"
	// ReasonLimitReached: the claim's project has reached its limit for the pool or the class. The
	// claim is bound when the project holds less.
	ReasonLimitReached = "LimitReached"
	// ReasonRecordRefused: the claim waited, and could be served, but its IPAllocation cannot be
	// recorded; the message has the error of the API server, such as an exceeded quota. Others are
	// served before it. The operator retries until the cause ends. Also used for a pool that cannot
	// be changed, and for an IPAddressClaim, also if its IPAddress is refused and the address is
	// already held.
	ReasonRecordRefused = "RecordRefused"
	// ReasonTooManyWaiting: its namespace has reached the limit of waiting claims. Others are
	// served before it; it joins the queue when another claim of its namespace leaves.
	ReasonTooManyWaiting = "TooManyWaiting"
	// ReasonNotServed: the claim waits in a namespace that the operator that answered the create
	// call does not serve (--namespace). Another operator may serve it.
	ReasonNotServed = "NotServed"
	// ReasonReady: the object is ready for use.
	ReasonReady = "Ready"
	// ReasonFull: the pool works, and has no free address.
	ReasonFull = "Full"
	// ReasonRecorded: the pool's CIDR is recorded, and no other record overlaps it.
	ReasonRecorded = "Recorded"
	// ReasonParentNotReady: the parent of the pool is missing or not ready.
	ReasonParentNotReady = "ParentNotReady"
	// ReasonInvalid: the spec is invalid; the message names the field.
	ReasonInvalid = "Invalid"
	// ReasonPaused: an annotation pauses allocation from the pool.
	ReasonPaused = "Paused"
	// ReasonProviderRunning: the in-cluster provider runs and hands out the addresses of its pools, so
	// Cadastre does not.
	ReasonProviderRunning = "ProviderRunning"
	// ReasonTerminating: the pool is being deleted, and allocates no blocks.
	ReasonTerminating = "Terminating"
	// ReasonNoPools: no IPPool backs the class, and claims of it wait for one. LocalIPPools
	// are not counted.
	ReasonNoPools = "NoPools"
	// ReasonClusterNotFound: the Cluster to which an IPAddressClaim belongs does not
	// exist.
	ReasonClusterNotFound = "ClusterNotFound"
	// ReasonNotDefault: an older class is the default of this address family.
	ReasonNotDefault = "NotDefault"
)

// AnnotationUseGranted on a claim or a child pool names the pool that its creator had the right to
// use when the object was created, or got while the object waited, if that requires a right: a pool
// of another project, and for a LocalIPPool any IPPool. If the pool existed, its UID follows the name
// after a slash, and the right is for that pool alone. Only the operator writes it.
const AnnotationUseGranted = "ipam.cadastre.dev/use-granted"

// AnnotationRequester held the encrypted creator of a waiting object in former versions. It has no
// effect, and the operator removes it with its next write of the object.
const AnnotationRequester = "ipam.cadastre.dev/requester"

// Annotations that pause allocation from a pool; releases continue. They pause with any value,
// including "false", as Cluster API defines for its annotation (annotations.HasPaused).
const (
	AnnotationPaused           = "ipam.cadastre.dev/paused"
	AnnotationClusterAPIPaused = "cluster.x-k8s.io/paused"
)

// FinalizerPool is on every pool: it stays until its last block is released.
const FinalizerPool = "ipam.cadastre.dev/pool"

// LabelProject on a Namespace names the project to which it belongs. Default: the name of the
// namespace.
const LabelProject = "ipam.cadastre.dev/project"

// DefaultRoutingDomain is the routing domain of root pools that name none.
const DefaultRoutingDomain = "default"

// CauseLimitReached is the type of a cause in the details of an error: the request is refused
// because a limit of the project or of the namespace is reached, and not because a right or room is
// missing.
const CauseLimitReached metav1.CauseType = "LimitReached"
