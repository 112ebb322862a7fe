package v1alpha1

// CandidateReason states in one word why a claim is not served from a pool that it can use.
type CandidateReason string

// Reasons of candidates. Fits and OutOfTurn are never stored, because both last only moments.
const (
	// CandidateFits: the pool has a free block for the claim. Only in the answer to a dry run.
	CandidateFits CandidateReason = "Fits"
	// CandidateOutOfTurn: the pool has a free block, but keeps it for a claim that already waits.
	// Only in the answer to a dry run; a stored claim has NoFreeBlock.
	CandidateOutOfTurn CandidateReason = "OutOfTurn"
	// CandidateNoFreeBlock: the pool has no free block of that length for the claim. The claim is
	// bound when a block is released and no older claim waits for it.
	CandidateNoFreeBlock CandidateReason = "NoFreeBlock"
	// CandidateInUse: the block that spec.cidr requests, or a part of it, has a holder.
	CandidateInUse CandidateReason = "InUse"
	// CandidateWithheld: the block that spec.cidr requests is never allocated: it is reserved, a
	// gateway or edge address, or outside the pool's ranges.
	CandidateWithheld CandidateReason = "Withheld"
	// CandidateLimitReached: the claim's project has reached its limit for the pool or the class.
	CandidateLimitReached CandidateReason = "LimitReached"
	// CandidateCannotFit: the pool has no block of that length even when it is empty.
	CandidateCannotFit CandidateReason = "CannotFit"
	// CandidateFamilyMismatch: the pool is of the other address family.
	CandidateFamilyMismatch CandidateReason = "FamilyMismatch"
	// CandidateLocalPoolNotAllowed: the pool is a LocalIPPool, and the class does not have
	// allowLocalPools.
	CandidateLocalPoolNotAllowed CandidateReason = "LocalPoolNotAllowed"
	// CandidateOutsidePool: the block that spec.cidr requests is not in the pool.
	CandidateOutsidePool CandidateReason = "OutsidePool"
	// CandidateLengthNotAllowed: the pool does not allow blocks of that length.
	CandidateLengthNotAllowed CandidateReason = "LengthNotAllowed"
	// CandidateRetainNotAllowed: the claim requests Retain, which the pool does not allow.
	CandidateRetainNotAllowed CandidateReason = "RetainNotAllowed"
	// CandidateNotReady: the pool's own CIDR is missing, is not recorded yet, or is in
	// conflict.
	CandidateNotReady CandidateReason = "NotReady"
	// CandidatePaused: the pool is paused by an annotation, or its Cluster is paused or
	// missing.
	CandidatePaused CandidateReason = "Paused"
	// CandidateTerminating: the pool is being deleted.
	CandidateTerminating CandidateReason = "Terminating"
)
