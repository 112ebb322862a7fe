package ipam

import (
	"cmp"
	"errors"
	"slices"
)

// Verdict says in one word what was decided about one pool for one request.
type Verdict string

// The verdicts.
const (
	// Fits: the pool has a free block for the request.
	Fits Verdict = "Fits"
	// NoFreeBlock: no block of the length is free.
	NoFreeBlock Verdict = "NoFreeBlock"
	// OutOfTurn: a block is free, and is for a request that waits.
	OutOfTurn Verdict = "OutOfTurn"
	// InUse: the very block that is asked for has a holder.
	InUse Verdict = "InUse"
	// Withheld: the very block that is asked for is never handed out.
	Withheld Verdict = "Withheld"
	// LimitReached: the project holds as much of the pool, or of the class, as it may.
	LimitReached Verdict = "LimitReached"
	// CannotFit: the pool has no block of the length even when it is empty.
	CannotFit Verdict = "CannotFit"
	// FamilyMismatch: the pool is of the other address family.
	FamilyMismatch Verdict = "FamilyMismatch"
	// LocalPoolNotAllowed: the pool is a namespace's own, and the class does not allow these.
	LocalPoolNotAllowed Verdict = "LocalPoolNotAllowed"
	// OutsidePool: the very block that is asked for does not lie in the pool.
	OutsidePool Verdict = "OutsidePool"
	// LengthNotAllowed: the length is outside the pool's bounds.
	LengthNotAllowed Verdict = "LengthNotAllowed"
	// RetainNotAllowed: the block is to be kept, which the pool does not allow.
	RetainNotAllowed Verdict = "RetainNotAllowed"
	// NotReady: the pool's own CIDR is missing, is not recorded, or is in conflict.
	NotReady Verdict = "NotReady"
	// Paused: the pool, or the Cluster to which it belongs, is paused.
	Paused Verdict = "Paused"
	// Terminating: the pool is being deleted.
	Terminating Verdict = "Terminating"
)

// PoolResult is a pool that a request may use, and why it is not served from there; Err
// is nil where it is, or could be.
type PoolResult struct {
	Pool PoolKey
	Err  error
}

// Verdict is what the error comes to.
func (r PoolResult) Verdict() Verdict {
	var exhausted *ExhaustedError
	var taken *TakenError
	var limit *LimitError
	var policy *PolicyError
	var missing *MissingError
	switch {
	case r.Err == nil:
		return Fits
	case errors.As(r.Err, &exhausted) && exhausted.OutOfTurn:
		return OutOfTurn
	case errors.As(r.Err, &exhausted):
		return NoFreeBlock
	case errors.As(r.Err, &taken) && taken.IsWithheld():
		return Withheld
	case errors.As(r.Err, &taken):
		return InUse
	case errors.As(r.Err, &limit), errors.Is(r.Err, ErrTooManyUnclaimed):
		return LimitReached
	case errors.As(r.Err, &policy):
		return policy.Verdict
	case errors.As(r.Err, &missing):
		return cmp.Or(missing.Verdict, NotReady)
	}
	return NotReady
}

// SortByPool puts results into the order of ByName: it does not change while a request
// waits, unlike the order in which pools are tried.
func SortByPool(results []PoolResult) {
	slices.SortStableFunc(results, func(a, b PoolResult) int { return compareKeys(a.Pool, b.Pool) })
}

// WithPools returns the error with what was decided about each pool, for PoolsOf.
func WithPools(err error, pools []PoolResult) error {
	if err == nil || len(pools) == 0 {
		return err
	}
	return &poolsError{err, pools}
}

// PoolsOf is what was decided about each pool that the request may use; empty where the
// error is not about pools.
func PoolsOf(err error) []PoolResult {
	if of, ok := errors.AsType[interface {
		error
		poolResults() []PoolResult
	}](err); ok {
		return of.poolResults()
	}
	return nil
}

// poolsError says the same as the error in it.
type poolsError struct {
	error
	pools []PoolResult
}

func (e *poolsError) Unwrap() error             { return e.error }
func (e *poolsError) poolResults() []PoolResult { return e.pools }

func (e *ParkedError) poolResults() []PoolResult { return e.Pools }
