package v1alpha1

// Conditions of an IPClaim. Exactly one of Pending, Bound and Exhausted is
// True; Ready has the status of Bound, for tools that look for it (kstatus).
const (
	// ConditionReady is True when the object does what it is there for.
	//
	// IPClaim: has the status and reason of Bound. IPPool, LocalIPPool: Ready,
	// ParentNotReady, PoolExhausted, Invalid, Conflict, Paused, Terminating.
	// IPClass: Ready, NoPools, NotDefault, ForeignProvisioner.
	ConditionReady = "Ready"

	// ConditionPending is True while something that the claim needs is missing
	// or not ready. Nothing is held for it.
	//
	// Reasons: ClassNotFound, NoDefaultClass, PoolNotFound, PoolNotReady,
	// NoPoolForClass, PolicyViolation, ForeignProvisioner, Conflict, when True;
	// Bound, PoolExhausted, when False.
	ConditionPending = "Pending"

	// ConditionBound is True when a block is held for the claim.
	//
	// Reasons: Bound when True; otherwise that of the condition that is.
	ConditionBound = "Bound"

	// ConditionExhausted is True when no pool that the claim may use has a free
	// block of the requested length. The claim is bound as soon as one is
	// released. On a pool: no address is left to hand out.
	//
	// Reasons: PoolExhausted when True, otherwise that of the condition that
	// is; on a pool PoolExhausted or HasRoom.
	ConditionExhausted = "Exhausted"

	// ConditionAllocated is True when the pool's own CIDR is recorded, in its
	// parent or in its routing domain, and nothing else overlaps it there.
	//
	// Reasons: Recorded when True; ParentNotReady, Conflict, PoolExhausted,
	// Invalid otherwise.
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
	// ReasonForeignProvisioner: another provisioner serves this class.
	ReasonForeignProvisioner = "ForeignProvisioner"
	// ReasonConflict: the block is held by somebody else.
	ReasonConflict = "Conflict"
	// ReasonReady: the object does what it is there for.
	ReasonReady = "Ready"
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
	// ReasonNoPools: no IPPool backs the class. LocalIPPools are not counted.
	ReasonNoPools = "NoPools"
	// ReasonNotDefault: an older class is the default of this address family.
	ReasonNotDefault = "NotDefault"
)

// AnnotationUseGranted on a claim or a child pool names the pool that its maker
// was allowed to use when it was made, where that takes a right: one of another
// project, and for a LocalIPPool any IPPool. Only the operator writes it.
const AnnotationUseGranted = "ipam.cadastre.dev/use-granted"

// Annotations that pause a pool, whatever their value: nothing is handed out,
// releases go on.
const (
	AnnotationPaused    = "ipam.cadastre.dev/paused"
	AnnotationPausedAll = "cluster.x-k8s.io/paused"
)

// FinalizerPool is on every pool: it stays until its last block is released.
const FinalizerPool = "ipam.cadastre.dev/pool"

// LabelProject on a Namespace names the project to which it belongs. Default:
// the namespace's own name.
const LabelProject = "ipam.cadastre.dev/project"

// DefaultRoutingDomain is the routing domain of root pools that name none.
const DefaultRoutingDomain = "default"
