package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Conditions. Of an IPClaim exactly one of Pending, Bound and Exhausted is True, and the
// other two have the reason of that one.
//
// Each comment lists the reasons of the condition, by kind and status, in lines that
// `make docs` reads.
const (
	// ConditionReady is True when the object does what it is there for. Of an IPClaim it has
	// the status and the reason of Bound, for tools that look for Ready (kstatus), but where
	// another claim's record overlaps the block: then it is False, with the reason Conflict.
	//
	//	IPClaim, True: Bound
	//	IPClaim, False: ClassNotFound, NoDefaultClass, PoolNotFound, PoolNotReady, NoPoolForClass, PolicyViolation, CannotFit, ForeignProvisioner, Conflict, LimitReached, RecordRefused, TooManyWaiting, NotServed, PoolExhausted
	//	IPPool, LocalIPPool, True: Ready, Full
	//	IPPool, LocalIPPool, False: ParentNotReady, PoolExhausted, CannotFit, Invalid, Conflict, RecordRefused, LimitReached, Paused, Terminating
	//	IPClass, True: Ready, NoPools, ForeignProvisioner
	//	IPClass, False: NotDefault
	//	IPAddressClaim, True: AddressAllocated
	//	IPAddressClaim, False: PoolExhausted, PoolNotFound, PoolNotReady, ClusterNotFound, Paused, AllocationFailed, LimitReached, RecordRefused, TooManyWaiting
	ConditionReady = "Ready"

	// ConditionPending is True while something that the claim needs is missing
	// or not ready. Nothing is held for it.
	//
	//	IPClaim, True: ClassNotFound, NoDefaultClass, PoolNotFound, PoolNotReady, NoPoolForClass, PolicyViolation, CannotFit, ForeignProvisioner, Conflict, LimitReached, RecordRefused, TooManyWaiting, NotServed
	ConditionPending = "Pending"

	// ConditionBound is True when a block is held for the claim.
	//
	//	IPClaim, True: Bound
	ConditionBound = "Bound"

	// ConditionExhausted is True when no pool that the claim may use has a free
	// block of the requested length. The claim is bound as soon as one is
	// released. On a pool: no address is left to hand out.
	//
	//	IPClaim, True: PoolExhausted
	//	IPPool, LocalIPPool, True: PoolExhausted
	//	IPPool, LocalIPPool, False: HasRoom
	ConditionExhausted = "Exhausted"

	// ConditionAllocated is True when the pool's own CIDR is recorded, in its
	// parent or in its routing domain, and nothing else overlaps it there.
	//
	//	IPPool, LocalIPPool, True: Recorded
	//	IPPool, LocalIPPool, False: ParentNotReady, PoolExhausted, CannotFit, Invalid, Conflict, RecordRefused, LimitReached
	ConditionAllocated = "Allocated"
)

// Reasons of conditions.
const (
	// ReasonBound: a block is held for the claim.
	ReasonBound = "Bound"
	// ReasonPoolExhausted: no pool that may serve it has a free block of that
	// length; of a pool: no address is left.
	ReasonPoolExhausted = "PoolExhausted"
	// ReasonHasRoom: the pool has addresses left.
	ReasonHasRoom = "HasRoom"
	// ReasonClassNotFound: there is no class of that name that the claim may use.
	ReasonClassNotFound = "ClassNotFound"
	// ReasonNoDefaultClass: the claim names no class, and there is no default.
	ReasonNoDefaultClass = "NoDefaultClass"
	// ReasonPoolNotFound: there is no pool of that name that the claim may use.
	ReasonPoolNotFound = "PoolNotFound"
	// ReasonPoolNotReady: the pool that the claim names is not ready.
	ReasonPoolNotReady = "PoolNotReady"
	// ReasonNoPoolForClass: no pool that is ready backs the class.
	ReasonNoPoolForClass = "NoPoolForClass"
	// ReasonPolicyViolation: class or pool, made after the claim, do not allow
	// what it asks for.
	ReasonPolicyViolation = "PolicyViolation"
	// ReasonCannotFit: no pool that may serve it, or no parent, could hand out a
	// block of that length even if nothing of it were in use: its ranges and
	// reserved addresses leave smaller blocks only. A block that is released does
	// not help; a smaller request does, and so does a change of the pool's spec.
	ReasonCannotFit = "CannotFit"
	// ReasonForeignProvisioner: another provisioner serves this class.
	ReasonForeignProvisioner = "ForeignProvisioner"
	// ReasonConflict: the block has another holder, or, where the claim is bound, a
	// second holder.
	ReasonConflict = "Conflict"
	// ReasonLimitReached: the claim's project holds as much of the pool, or of the
	// class, as one project may. The claim is bound once the project holds less.
	ReasonLimitReached = "LimitReached"
	// ReasonRecordRefused: the claim waited, and could be served, but its IPAllocation
	// cannot be recorded; the message has what the API server says, such as that a quota
	// is exceeded. Others are served before it. It is tried again until the cause ends.
	// Also of a pool that cannot be changed, and of an IPAddressClaim: there also where
	// its IPAddress is refused, and the address is held already.
	ReasonRecordRefused = "RecordRefused"
	// ReasonTooManyWaiting: as many claims of its namespace wait as may. Others are
	// served before it, and it is in line when one of its namespace is no more.
	ReasonTooManyWaiting = "TooManyWaiting"
	// ReasonNotServed: the claim waits in a namespace that the operator which answered the
	// create call does not serve (--namespace). Another operator may.
	ReasonNotServed = "NotServed"
	// ReasonReady: the object does what it is there for.
	ReasonReady = "Ready"
	// ReasonFull: the pool works, and has nothing left to hand out.
	ReasonFull = "Full"
	// ReasonRecorded: the pool's CIDR is recorded and nothing overlaps it.
	ReasonRecorded = "Recorded"
	// ReasonParentNotReady: the parent of the pool is missing or not ready.
	ReasonParentNotReady = "ParentNotReady"
	// ReasonInvalid: the spec cannot be honoured; the message says which field.
	ReasonInvalid = "Invalid"
	// ReasonPaused: an annotation pauses the pool; nothing is handed out.
	ReasonPaused = "Paused"
	// ReasonTerminating: the pool is being deleted; nothing is handed out.
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
// use when the object was created, or got it while the object waited, if that takes a right: one of
// another project, and for a LocalIPPool any IPPool. If the pool existed, its UID follows the name
// after a slash, and the right is for that pool alone. Only the operator writes it.
const AnnotationUseGranted = "ipam.cadastre.dev/use-granted"

// AnnotationRequester held the encrypted creator of a waiting object in former versions. It has no
// effect, and the operator removes it with its next write of the object.
const AnnotationRequester = "ipam.cadastre.dev/requester"

// Annotations that pause a pool: nothing is handed out, releases go on. They do so
// whatever their value, "false" included. That is Cluster API's rule for its own
// (annotations.HasPaused), and ours follows it.
const (
	AnnotationPaused           = "ipam.cadastre.dev/paused"
	AnnotationClusterAPIPaused = "cluster.x-k8s.io/paused"
)

// FinalizerPool is on every pool: it stays until its last block is released.
const FinalizerPool = "ipam.cadastre.dev/pool"

// LabelProject on a Namespace names the project to which it belongs. Default:
// the namespace's own name.
const LabelProject = "ipam.cadastre.dev/project"

// DefaultRoutingDomain is the routing domain of root pools that name none.
const DefaultRoutingDomain = "default"

// CauseLimitReached is the type of a cause in the details of an error: the request is
// refused because a limit of the project or of the namespace is reached, and not for want of a right
// or of room.
const CauseLimitReached metav1.CauseType = "LimitReached"
