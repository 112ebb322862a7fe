package ipam

import (
	"cmp"
	"errors"
	"fmt"
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

// Fold returns the terms of a request under a class, which may be nil. It derives them from the
// pools of the class that exist at the moment. The error is a *PolicyError, or a *MissingError
// if a length follows only from pools that are missing.
//
// The claim counts first, then the class, then the pools.
func Fold(req Request, class *Class, pools []Pool) (Terms, error) {
	t := Terms{
		Family: req.Family, Length: req.Length, Block: req.Block, Reclaim: req.Reclaim,
		Single: req.Single, BlockField: req.BlockField, Selection: SelectFirstFit,
	}
	if class != nil {
		if err := t.underClass(*class); err != nil {
			return Terms{}, err
		}
	}
	if err := t.fromPools(pools); err != nil {
		return Terms{}, err
	}
	if t.Reclaim == "" {
		t.Reclaim = ReclaimDelete
	}
	t.Sticky = req.Sticky
	if t.Retains = retains(t.Reclaim, req.Sticky); t.Retains != "" && class != nil && !class.AllowRetain {
		return Terms{}, t.retainError(fmt.Sprintf("class %s", class.Name))
	}
	return t, t.checkLength(class)
}

// retains returns the field that asks for the block to be kept; empty if none does.
func retains(reclaim Reclaim, sticky string) string {
	switch {
	case reclaim == ReclaimRetain:
		return "spec.reclaimPolicy"
	case sticky != "":
		return FieldSticky
	}
	return ""
}

// retainError returns the error that refuses to keep a block.
func (t *Terms) retainError(subject string) *PolicyError {
	value, remedy := any(ReclaimRetain), "leave reclaimPolicy out, or write Delete"
	if t.Retains == FieldSticky {
		value, remedy = t.Sticky, "remove the annotation"
	}
	return &PolicyError{Verdict: RetainNotAllowed, Field: t.Retains, Value: value, Remedy: fmt.Sprintf("%s does not allow it (allowRetain): %s", subject, remedy)}
}

func (t *Terms) underClass(c Class) error {
	if t.Family != "" && t.Family != c.Family && !t.Block.IsValid() {
		return &PolicyError{Field: "spec.ipFamily", Value: t.Family,
			Remedy: fmt.Sprintf("class %s hands out %s: remove ipFamily, or name another class", c.Name, c.Family)}
	}
	if t.Block.IsValid() && FamilyOf(t.Block) != c.Family {
		return &PolicyError{Field: t.blockField(), Value: t.Block,
			Remedy: fmt.Sprintf("class %s hands out %s: ask for such a block, or name another class", c.Name, c.Family)}
	}
	t.Class, t.Provisioner, t.Family = c.Name, c.Provisioner, c.Family
	t.Selection, t.Strategy, t.OnExhaustion = c.Selection, c.Strategy, c.OnExhaustion
	if t.Reclaim == "" {
		t.Reclaim = c.Reclaim
	}
	if t.Length == NoLength && !t.Block.IsValid() && !t.Single {
		t.Length = c.Length
	}
	return nil
}

// fromPools fills in the terms that neither claim nor class states.
func (t *Terms) fromPools(pools []Pool) error {
	if t.Block.IsValid() {
		t.Length, t.Family = t.Block.Bits(), FamilyOf(t.Block)
	}
	if t.Family == "" && len(pools) > 0 {
		t.Family = pools[0].Family
	}
	if t.Length != NoLength {
		return nil
	}
	if t.Single && t.Family != "" {
		t.Length = t.Family.Bits()
	}
	if len(pools) == 0 || t.Single {
		return nil
	}
	for _, p := range pools {
		if p.Network == nil {
			return &PolicyError{Field: "spec.prefixLength",
				Remedy: fmt.Sprintf("set it to the length of the block that you need, such as %d for one address: neither the class nor %s has a default", p.Family.Bits(), p.Key)}
		}
	}
	t.Length = t.Family.Bits()
	return nil
}

func (t *Terms) checkLength(class *Class) error {
	if t.Length == NoLength || t.Family == "" {
		return nil
	}
	if t.Length > t.Family.Bits() {
		return &PolicyError{Field: "spec.prefixLength", Value: t.Length,
			Remedy: fmt.Sprintf("must be %d or less for %s", t.Family.Bits(), t.Family)}
	}
	if class != nil && !class.Lengths.Contain(t.Length) && t.Single {
		return &PolicyError{Field: "spec.poolRef.name", Value: class.Name,
			Remedy: fmt.Sprintf("the class hands out /%d to /%d, and an IPAddressClaim is one address, a /%d: set spec.allowedPrefixLengths of the class so that it allows that, or name another class", class.Lengths.Min, class.Lengths.Max, t.Length)}
	}
	if class != nil && !class.Lengths.Contain(t.Length) {
		return &PolicyError{Field: t.lengthField(), Value: t.lengthValue(),
			Remedy: fmt.Sprintf("class %s allows /%d to /%d: ask for one of these", class.Name, class.Lengths.Min, class.Lengths.Max)}
	}
	return nil
}

// blockField returns the field that states the requested block.
func (t Terms) blockField() string { return cmp.Or(t.BlockField, "spec.cidr") }

// lengthField returns the field that states the length of the block.
func (t Terms) lengthField() string {
	if t.Block.IsValid() {
		return t.blockField()
	}
	return "spec.prefixLength"
}

func (t Terms) lengthValue() any {
	if t.Block.IsValid() {
		return t.Block
	}
	return t.Length
}

// Fitting returns the pools that may hand out a block under the terms, and the reasons why the
// others may not. If none may, the error is a *PolicyError that states what one of them would
// hand out.
func (t Terms) Fitting(pools []Pool) (fitting []Pool, unfit []PoolResult, err error) {
	for _, p := range pools {
		if refusal := t.fits(p); refusal != nil {
			unfit = append(unfit, PoolResult{p.Key, refusal})
			continue
		}
		fitting = append(fitting, p)
	}
	if len(fitting) == 0 && len(unfit) > 0 {
		err = unfit[len(unfit)-1].Err
	}
	return fitting, unfit, err
}

// fits returns the reason why a pool may not hand out a block under the terms; nil if it may.
func (t Terms) fits(p Pool) *PolicyError {
	if refusal := t.mismatch(p); refusal != nil {
		return refusal
	}
	if t.Class == "" && t.Retains != "" && !p.AllowRetain {
		return t.retainError(p.Key.String())
	}
	if t.Length != NoLength && !p.Lengths.Contain(t.Length) && t.Single {
		return &PolicyError{Verdict: LengthNotAllowed, Field: "spec.poolRef.name", Value: cmp.Or(t.Class, p.Key.Name),
			Remedy: fmt.Sprintf("%s hands out /%d to /%d, and an IPAddressClaim is one address, a /%d: set spec.allocation of the pool so that it allows that, or name another pool", p.Key, p.Lengths.Min, p.Lengths.Max, t.Length)}
	}
	if t.Length != NoLength && !p.Lengths.Contain(t.Length) {
		return &PolicyError{Verdict: LengthNotAllowed, Field: t.lengthField(), Value: t.lengthValue(),
			Remedy: fmt.Sprintf("%s (%s) hands out /%d to /%d: ask for one of these", p.Key, p.CIDR, p.Lengths.Min, p.Lengths.Max)}
	}
	return nil
}

// mismatch returns the reason why no block of the pool fits the request: it is of the other
// family, or lies elsewhere. For a child pool that waits for its parent, neither family nor
// CIDR need be known: the blocks that it may hand out are judged when it has them.
func (t Terms) mismatch(p Pool) *PolicyError {
	isOther := p.Family != "" && p.Family != t.Family
	switch {
	case isOther && t.Block.IsValid():
		return &PolicyError{Verdict: FamilyMismatch, Field: t.blockField(), Value: t.Block,
			Remedy: fmt.Sprintf("%s is %s: ask for such a block, or name a pool of the family that you need", p.Key, p.Family)}
	case isOther:
		return &PolicyError{Verdict: FamilyMismatch, Field: "spec.ipFamily", Value: t.Family,
			Remedy: fmt.Sprintf("%s is %s: name a pool of the family that you need", p.Key, p.Family)}
	case t.Block.IsValid() && p.CIDR.IsValid() && !p.Has(t.Block):
		return &PolicyError{Verdict: OutsidePool, Field: t.blockField(), Value: t.Block,
			Remedy: fmt.Sprintf("lies outside %s, which is %s: ask for a block within it, or name another pool", p.Key, p.Extent())}
	}
	return nil
}
