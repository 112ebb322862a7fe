package ipam

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
)

// Request holds the request of a claim, or that of a child pool to its parent.
type Request struct {
	// Claim is zero, and Child is not, if a pool asks.
	Claim Name
	Child PoolKey
	// Tenant is the requester.
	Tenant Tenant
	// Grant is the right of the requester to use the named pool; nil if there is none.
	Grant *Grant
	// RequestedBy is the user that created the claim, if the claim waits and the user is known.
	RequestedBy string

	// At most one of Class, Pool and Selects is set.
	Class string
	Pool  PoolKey
	// Selects picks pools by their labels.
	Selects func(labels map[string]string) bool
	// Selector is a hash of Selects: two requests with the same hash pick the same pools. Empty
	// if it is not known.
	Selector string
	// SelectorBytes is the approximate memory that Selects takes.
	SelectorBytes int

	// Family is empty, and Length NoLength, if the claim does not state them.
	Family Family
	Length int
	// Single reports whether one address is requested, whatever length the class hands out by
	// default: the request is one of Cluster API's claims.
	Single bool
	// Block is the requested block, or the zero Prefix.
	Block netip.Prefix
	// BlockField is the field that states Block; empty: spec.cidr.
	BlockField string
	// Reclaim is empty if the claim does not state it.
	Reclaim Reclaim
	// Sticky is the key that requests the block of an earlier claim, and by which a later one
	// gets it; empty if there is none.
	Sticky string
}

// Wants holds the length that a request would take, and the pools that could serve it. Without
// pools, the request waits for something that is missing or not allowed, or for the provisioner.
type Wants struct {
	Pools []PoolKey
	// Length is the prefix length.
	Length int
	// Account is the project and the class for which the block would count.
	Account Account
	// Provisioner of the class, which makes pools for its waiting claims; empty if there is none.
	Provisioner string
}

// Equal reports whether both are the same.
func (w Wants) Equal(other Wants) bool {
	return w.Length == other.Length && w.Account == other.Account && w.Provisioner == other.Provisioner && slices.Equal(w.Pools, other.Pools)
}

// Tenant identifies the tenant on whose behalf a request is made.
type Tenant struct {
	// Project of the namespace.
	Project string
	// Platform reports whether that is the platform's own project.
	Platform bool
}

// Grant represents the right to use the pool that a request names.
type Grant struct {
	// PoolUID is the UID of the pool for which the right was judged. It is empty if no pool of
	// the name existed then: the grant is for any pool of the name.
	PoolUID string
}

// covers reports whether the grant is for the pool: a pool that was created again under the same
// name has another UID.
func (g *Grant) covers(pool Pool) bool {
	return g != nil && (g.PoolUID == "" || g.PoolUID == pool.Spec.UID)
}

// ParentRequest returns the request of a child pool to its parent.
func (p Pool) ParentRequest() Request {
	return Request{Child: p.Key, Grant: p.ParentGrant, Pool: p.Home, Family: p.Family, Length: p.Length, Block: p.CIDR}
}

// Candidate holds a pool and the part of it that is in use: 0 to 1.
type Candidate struct {
	Pool     Pool
	Utilized float64
}

// Rank orders pools as they are to be tried. A namespace's own pools come before cluster-scoped
// ones; ties, and FirstFit, go by name.
func Rank(pools []Candidate, selection Selection) []Pool {
	order := slices.Clone(pools)
	slices.SortFunc(order, func(a, b Candidate) int {
		return cmp.Or(
			ownFirst(a.Pool.Key, b.Pool.Key),
			direction(selection)*cmp.Compare(a.Utilized, b.Utilized),
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

func direction(selection Selection) int {
	switch selection {
	case SelectLeastUtilized:
		return 1
	case SelectMostUtilized:
		return -1
	default:
		return 0
	}
}

// Verdict represents the decision about one pool for one request, in one word.
type Verdict string

// The verdicts.
const (
	// Fits: the pool has a free block for the request.
	Fits Verdict = "Fits"
	// NoFreeBlock: no block of the length is free.
	NoFreeBlock Verdict = "NoFreeBlock"
	// OutOfTurn: a block is free, and is for a request that waits.
	OutOfTurn Verdict = "OutOfTurn"
	// InUse: the requested block has a holder.
	InUse Verdict = "InUse"
	// Withheld: the requested block is never handed out.
	Withheld Verdict = "Withheld"
	// LimitReached: the project has reached the limit of the pool, or of the class.
	LimitReached Verdict = "LimitReached"
	// CannotFit: the pool has no block of the length even when it is empty.
	CannotFit Verdict = "CannotFit"
	// FamilyMismatch: the pool is of the other address family.
	FamilyMismatch Verdict = "FamilyMismatch"
	// LocalPoolNotAllowed: the pool is a namespace's own, and the class does not allow these.
	LocalPoolNotAllowed Verdict = "LocalPoolNotAllowed"
	// OutsidePool: the requested block does not lie in the pool.
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

// PoolResult holds a pool that a request can use, and the reason why it is not served from
// there. Err is nil if it is, or could be.
type PoolResult struct {
	Pool PoolKey
	Err  error
}

// Verdict returns the verdict that follows from the error.
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

// WithPools returns the error with the decision about each pool, for PoolsOf.
func WithPools(err error, pools []PoolResult) error {
	if err == nil || len(pools) == 0 {
		return err
	}
	return &poolsError{err, pools}
}

// PoolsOf returns the decision about each pool that the request can use; empty if the error is
// not about pools.
func PoolsOf(err error) []PoolResult {
	if poolsErr, ok := errors.AsType[interface {
		error
		poolResults() []PoolResult
	}](err); ok {
		return poolsErr.poolResults()
	}
	return nil
}

// poolsError adds pools to an error, and keeps its text.
type poolsError struct {
	error
	pools []PoolResult
}

func (e *poolsError) Unwrap() error             { return e.error }
func (e *poolsError) poolResults() []PoolResult { return e.pools }

func (e *ParkedError) poolResults() []PoolResult { return e.Pools }
