package ipam

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
)

// Request is what a claim asks for, or a child pool of its parent.
type Request struct {
	// Claim is zero, and Child is not, where it is a pool that asks.
	Claim Name
	Child PoolKey
	// Tenant is who asks.
	Tenant Tenant
	// Granted reports whether the requester has the right to use the pool that is named,
	// where that takes one.
	Granted bool
	// RequestedBy is the user who created the claim, where the claim waits and that is
	// known.
	RequestedBy string

	// At most one of Class, Pool and Selects is set.
	Class string
	Pool  PoolKey
	// Selects picks pools by their labels.
	Selects func(labels map[string]string) bool
	// Selector is a hash of Selects: of two requests that have the same, both pick the same
	// pools. Empty where that is not known.
	Selector string
	// SelectorBytes is about how much memory Selects takes.
	SelectorBytes int

	// Family is empty, and Length NoLength, where the claim does not say.
	Family Family
	Length int
	// Single says that one address is asked for, whatever length the class hands out
	// by default: it is one of Cluster API's claims.
	Single bool
	// Block is the very block that is asked for, or the zero Prefix.
	Block netip.Prefix
	// BlockField is the field that states Block; empty: spec.cidr.
	BlockField string
	// Reclaim is empty where the claim does not say.
	Reclaim Reclaim
	// Sticky is the key by which the block of an earlier claim is asked for, and
	// by which a later one gets it; empty where there is none.
	Sticky string
}

// Wants is what a request would take, and from which pools; without pools it waits for
// something that is missing or not allowed.
type Wants struct {
	Pools []PoolKey
	// Length is the prefix length.
	Length int
	// Account is for which project and class the block would count.
	Account Account
}

// Equal reports whether both are the same.
func (w Wants) Equal(other Wants) bool {
	return w.Length == other.Length && w.Account == other.Account && slices.Equal(w.Pools, other.Pools)
}

// Tenant is on whose behalf something is asked for.
type Tenant struct {
	// Project of the namespace.
	Project string
	// Platform reports whether that is the platform's own project.
	Platform bool
}

// ParentRequest is what a child pool asks of its parent.
func (p Pool) ParentRequest() Request {
	return Request{Child: p.Key, Granted: p.ParentGranted, Pool: p.Home, Family: p.Family, Length: p.Length, Block: p.CIDR}
}

// Candidate is a pool with how much of it is in use: 0 to 1.
type Candidate struct {
	Pool     Pool
	Utilized float64
}

// Rank orders pools as they are to be tried. A namespace's own pools come before
// cluster-scoped ones; ties, and FirstFit, go by name.
func Rank(pools []Candidate, by Selection) []Pool {
	order := slices.Clone(pools)
	slices.SortFunc(order, func(a, b Candidate) int {
		return cmp.Or(
			ownFirst(a.Pool.Key, b.Pool.Key),
			direction(by)*cmp.Compare(a.Utilized, b.Utilized),
			cmp.Compare(a.Pool.Key.Name, b.Pool.Key.Name),
		)
	})
	ranked := make([]Pool, len(order))
	for i, c := range order {
		ranked[i] = c.Pool
	}
	return ranked
}

// ByName orders pools by name, a namespace's own before cluster-scoped ones.
func ByName(a, b Pool) int { return compareKeys(a.Key, b.Key) }

func compareKeys(a, b PoolKey) int { return cmp.Or(ownFirst(a, b), cmp.Compare(a.Name, b.Name)) }

func ownFirst(a, b PoolKey) int {
	return -cmp.Compare(min(1, len(a.Namespace)), min(1, len(b.Namespace)))
}

func direction(by Selection) int {
	switch by {
	case SelectLeastUtilized:
		return 1
	case SelectMostUtilized:
		return -1
	default:
		return 0
	}
}

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
