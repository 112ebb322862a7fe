package v1alpha1

// CandidateReason says in one word why a claim is not served from a pool that it may use.
type CandidateReason string

// Reasons of candidates. What is stored has neither Fits nor OutOfTurn: both pass within
// moments.
const (
	// CandidateFits: the pool has a free block for the claim. Only in the answer to a dry run.
	CandidateFits CandidateReason = "Fits"
	// CandidateOutOfTurn: the pool has a free block, which is for a claim that waits already.
	// Only in the answer to a dry run; a claim that is stored says NoFreeBlock.
	CandidateOutOfTurn CandidateReason = "OutOfTurn"
	// CandidateNoFreeBlock: the pool has no free block of that length for the claim. It is
	// bound when one is released, and no older claim waits for it.
	CandidateNoFreeBlock CandidateReason = "NoFreeBlock"
	// CandidateInUse: the block that the claim asks for by spec.cidr, or a part of it, has a
	// holder.
	CandidateInUse CandidateReason = "InUse"
	// CandidateWithheld: the block that the claim asks for by spec.cidr is never handed out:
	// it is reserved, a gateway or edge address, or outside the pool's ranges.
	CandidateWithheld CandidateReason = "Withheld"
	// CandidateLimitReached: the claim's project holds as much of the pool, or of the class,
	// as one project may.
	CandidateLimitReached CandidateReason = "LimitReached"
	// CandidateCannotFit: the pool has no block of that length even when it is empty.
	CandidateCannotFit CandidateReason = "CannotFit"
	// CandidateFamilyMismatch: the pool is of the other address family.
	CandidateFamilyMismatch CandidateReason = "FamilyMismatch"
	// CandidateLocalPoolNotAllowed: the pool is a LocalIPPool, and the class does not have
	// allowLocalPools.
	CandidateLocalPoolNotAllowed CandidateReason = "LocalPoolNotAllowed"
	// CandidateOutsidePool: the block that the claim asks for by spec.cidr does not lie in the
	// pool.
	CandidateOutsidePool CandidateReason = "OutsidePool"
	// CandidateLengthNotAllowed: the pool does not hand out blocks of that length.
	CandidateLengthNotAllowed CandidateReason = "LengthNotAllowed"
	// CandidateRetainNotAllowed: the claim asks for Retain, which the pool does not allow.
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
