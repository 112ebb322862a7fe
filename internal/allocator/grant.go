package allocator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// Order is a resolved request with all that its record will say.
type Order struct {
	Resolution
	Holder ipam.Holder
	// HolderUID is empty where the holder does not exist yet.
	HolderUID string
	// Record is the name of the record to make.
	Record      ipam.Name
	RequestedBy string
	// PoolUnknown says that nobody has judged whether the holder may use the pool.
	PoolUnknown bool
	// Sticky is the key by which a later claim gets the block again.
	Sticky string
	// Existing holders have the block already: its record stays, although it cannot be
	// confirmed while its pool is missing.
	Existing bool
	// Waiting is the holder's place in the queue; nobody before it is
	// overtaken. Zero: it has only come, and is behind all.
	Waiting Waiting
}

// Preview is the block that Grant would give now. Nothing is recorded.
func (a *Allocator) Preview(order Order) (ipam.Record, error) {
	if record, ok := a.retained(order); ok {
		return record, nil
	}
	exhausted := order.exhausted()
	for _, pool := range order.Pools {
		block, err := a.ledger.Peek(a.ask(order, pool))
		if err == nil {
			return order.record(pool, block), nil
		}
		if !exhausted.take(pool, err) {
			return ipam.Record{}, err
		}
	}
	return ipam.Record{}, exhausted.err()
}

// Grant finds, records and confirms a block. When there is none, but a release
// is on its way, it waits for that first, unless the holder is in line, and has its
// turn then. A newcomer whom only a holder that comes before it keeps from a block
// waits a moment too, until that holder has one.
//
// Errors: *ipam.ExhaustedError, *ipam.TakenError, *ipam.LimitError,
// *ipam.MissingError where the pool is being released, ipam.ErrNotSynced,
// ipam.ErrUnconfirmed, ipam.ErrCrowded, ipam.ErrTooManyUnclaimed, or the API's own.
// After any error nothing is held, or it will be collected.
func (a *Allocator) Grant(ctx context.Context, order Order) (ipam.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmWithin)
	defer cancel()
	if record, ok := a.retake(ctx, order); ok {
		return record, nil
	}
	frees := a.ledger.Frees(order.keys())
	record, err := a.grant(ctx, order)
	if !noRoom(err) || a.queue.Has(order.Holder) || !a.awaitRoom(ctx, order, frees, err) {
		return record, err
	}
	order.Record = order.renamed()
	return a.grant(ctx, order)
}

// grant tries the pools in order until a block is confirmed.
func (a *Allocator) grant(ctx context.Context, order Order) (ipam.Record, error) {
	exhausted := order.exhausted()
	for i := 0; i < len(order.Pools); {
		pool := order.Pools[i]
		record, err := a.try(ctx, order, a.ask(order, pool))
		switch {
		case err == nil:
			return record, nil
		case errors.Is(err, ledger.ErrLost):
			order.Record = order.renamed() // and the next block of the same pool
		case exhausted.take(pool, err):
			i++
		default:
			return ipam.Record{}, err
		}
	}
	return ipam.Record{}, exhausted.err()
}

// ask is what is asked of the ledger: a block, unless that would overtake a claim that
// waits for one.
func (a *Allocator) ask(order Order, pool ipam.Pool) ledger.Ask {
	ask := ledger.Ask{
		Pool: pool.Key, Bits: order.Terms.Length, Block: order.Terms.Block,
		Strategy: pool.Strategy, Record: order.Record, Holder: order.Holder,
		MayTake: a.mayTake(order, pool),
	}
	a.account(&ask, order)
	if order.Terms.Strategy != "" {
		ask.Strategy = order.Terms.Strategy
	}
	return ask
}

// account says in a request whom the block counts for, and what bounds that.
func (a *Allocator) account(ask *ledger.Ask, order Order) {
	if order.isUnclaimed() {
		ask.UnclaimedLimit = a.unclaimedLimit()
	}
	ask.Project = a.projectOf(order.Holder)
	ask.Class = order.Terms.Class
	class, _ := a.catalogue.Class(ask.Class)
	ask.ClassLimit = class.Limit
}

// projectOf is the project of a holder; empty for a cluster-scoped pool.
func (a *Allocator) projectOf(holder ipam.Holder) string {
	tenant, _ := a.catalogue.Tenant(holder.Namespace)
	return tenant.Project
}

// inUse asks the ledger for a block that the holder has already. What exists is
// recorded whatever the limits say, but for IPAddresses, which are made by others than
// the operator.
func (a *Allocator) inUse(order Order, pool ipam.PoolKey) ledger.Ask {
	ask := ledger.Ask{
		Pool: pool, Bits: order.Terms.Length, Block: order.Terms.Block,
		Record: order.Record, Holder: order.Holder, InUse: true,
	}
	if a.account(&ask, order); order.Holder.Kind != AddressClaimKind {
		ask.Unlimited, ask.ClassLimit = true, ipam.Limit{}
	}
	return ask
}

// isUnclaimed reports whether the record will name a holder that is not known to
// exist. What is recorded for cluster-scoped pools is up to those who may make them.
func (o Order) isUnclaimed() bool { return o.HolderUID == "" && o.Holder.Namespace != "" }

// try finds a block in one pool, records and confirms it. Controllers have a bound
// of their own, and no API server that waits for their answer.
func (a *Allocator) try(ctx context.Context, order Order, ask ledger.Ask) (ipam.Record, error) {
	hold, err := a.hold(ctx, ask)
	if err != nil {
		return ipam.Record{}, err
	}
	if order.HolderUID == "" {
		if err := a.begin(ctx); err != nil {
			hold.Drop()
			return ipam.Record{}, err
		}
		defer a.attempts.Release(1)
	}
	return a.confirm(ctx, hold, order)
}

// hold finds a block and holds it. Where the namespace has its share of unclaimed
// records, it waits for a moment: those of creates under way are claimed within
// milliseconds.
func (a *Allocator) hold(ctx context.Context, ask ledger.Ask) (hold *ledger.Hold, err error) {
	ctx, cancel := context.WithTimeout(ctx, beginWithin)
	defer cancel()
	a.ledger.Await(ctx, []ipam.PoolKey{ask.Pool}, func() bool {
		hold, err = a.ledger.Hold(ask)
		return !errors.Is(err, ipam.ErrTooManyUnclaimed)
	})
	return hold, err
}

// begin waits until there are few enough attempts under way, oldest first. Who
// waits for too long has cost the API server nothing.
func (a *Allocator) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beginWithin)
	defer cancel()
	if a.attempts.Acquire(ctx, 1) != nil {
		return ipam.ErrCrowded
	}
	return nil
}

// confirm records a block that is held, and waits until it is known whose it is.
//
// A record that may have been created although the call failed is abandoned, where
// its name is this attempt's alone. Where it is the holder's, the record that turns
// up may be that of another attempt, which has been answered by then: it is left
// for the holder's next attempt, which confirms it as if it had just been made, or
// else to the collection of orphans.
func (a *Allocator) confirm(ctx context.Context, hold *ledger.Hold, order Order) (ipam.Record, error) {
	record := order.record(hold.Pool, hold.Block)
	record.Project = hold.Project() // for which it was judged
	obj := adapt.Allocation(record)
	if err := a.client.Create(ctx, obj); err != nil {
		if refused(err) || order.nameIsFixed() {
			hold.Drop()
		} else {
			hold.Abandon()
		}
		return ipam.Record{}, unavailable(ctx, fmt.Errorf("recording %s: %w", record.Block, err))
	}
	record.UID, record.Version = string(obj.UID), obj.ResourceVersion
	err := hold.Confirm(ctx, record.UID)
	switch {
	case err == nil:
		return record, nil
	case order.Existing && errors.Is(err, ledger.ErrPoolClosed):
		return record, poolClosed(order.Holder, record.Pool)
	}
	return ipam.Record{}, a.abandon(ctx, order, record, err)
}

// abandon gives up a record that could not be confirmed, and returns what that means.
// A record whose name is fixed, and of which nobody knows yet whose the block is, stays:
// it may be seen yet, and is then judged as if it had just been made.
func (a *Allocator) abandon(ctx context.Context, order Order, record ipam.Record, cause error) error {
	_, overLimit := errors.AsType[*ipam.LimitError](cause)
	closed := errors.Is(cause, ledger.ErrPoolClosed)
	switch {
	case order.nameIsFixed() && errors.Is(cause, ipam.ErrUnconfirmed):
	case !order.nameIsFixed():
		a.discard(record)
	default: // the name is needed again
		cause = errors.Join(cause, a.Release(ctx, record))
	}
	switch {
	case closed:
		return poolClosed(order.Holder, record.Pool)
	case overLimit: // what exceeded it may be about to give way too: the next try finds out
		return errors.Join(ledger.ErrLost, cause)
	}
	return cause
}

// poolClosed says that nothing is handed out from a pool.
func poolClosed(holder ipam.Holder, pool ipam.PoolKey) error {
	reason := v1alpha1.ReasonPoolNotReady
	if holder.IsPool() {
		reason = v1alpha1.ReasonParentNotReady
	}
	return missing(reason, "%s is being released, or its CIDR is not recorded", pool)
}

// refused reports whether a create call that failed surely created nothing.
// Whatever is not an answer of the API server, and its time-outs and internal
// errors, may have.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500
}

// unavailable is what a failed attempt means for whoever asked.
func unavailable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.Join(ipam.ErrUnconfirmed, err)
	}
	return err
}

func (o Order) record(pool ipam.Pool, block netip.Prefix) ipam.Record {
	return ipam.Record{
		Name: o.Record, Block: block, Pool: pool.Key, Class: o.Terms.Class,
		Holder: o.Holder, HolderUID: o.HolderUID, Purpose: o.purpose(),
		Reclaim: o.Terms.Reclaim, State: ipam.StateBound, RequestedBy: o.RequestedBy, Sticky: o.Sticky, PoolUnknown: o.PoolUnknown,
	}
}

// renamed is a fresh name for the next attempt: a name is used once, so that a
// late deletion of this attempt's record can never meet another.
func (o Order) renamed() ipam.Name {
	if o.nameIsFixed() {
		return o.Record // its deletion carries the UID
	}
	return AttemptName(o.Holder)
}

// nameIsFixed reports whether the record's name is that of the holder's next attempt too.
func (o Order) nameIsFixed() bool {
	return o.HolderUID != "" || o.purpose() == ipam.PurposePool || o.Record == BindName(o.Holder, "")
}

func (o Order) purpose() ipam.Purpose {
	if o.Holder.IsPool() {
		return ipam.PurposePool
	}
	return ipam.PurposeClaim
}

// AttemptName is a name for the record of one attempt to serve a claim that
// does not exist yet.
func AttemptName(holder ipam.Holder) ipam.Name {
	return ipam.Name{Namespace: holder.Namespace, Name: prefixOf(holder.Name) + "-" + randomSuffix()}
}

// prefixOf leaves room for a suffix of nine characters in a name of 253. It ends with
// a character with which a name may end: "." in front of "-" is not valid (RFC 1123).
func prefixOf(name string) string {
	if len(name) <= longestName-9 {
		return name
	}
	return strings.TrimRight(name[:longestName-9], ".-")
}

// shortage collects what pools say that have no room.
type shortage struct {
	exhausted ipam.ExhaustedError
	taken     *ipam.TakenError
	// limits are what the project has reached, in pools that may have room.
	limits []*ipam.LimitError
}

func (o Order) exhausted() *shortage {
	return &shortage{exhausted: ipam.ExhaustedError{Bits: o.Terms.Length, Largest: ipam.NoLength, OnExhaustion: onExhaustion(o.Terms, o.Pools)}}
}

// take notes an error that means no room, or that the room is for others, and reports
// whether it was one.
func (s *shortage) take(pool ipam.Pool, err error) bool {
	if errors.Is(err, ledger.ErrOutOfTurn) {
		s.exhausted.OutOfTurn = true
		s.add(pool, ipam.NoLength)
		return true
	}
	if exhausted, ok := errors.AsType[*ipam.ExhaustedError](err); ok {
		s.add(pool, exhausted.Largest)
		return true
	}
	if limit, ok := errors.AsType[*ipam.LimitError](err); ok {
		s.limits = append(s.limits, limit)
		return true
	}
	return errors.As(err, &s.taken)
}

func (s *shortage) add(pool ipam.Pool, largest int) {
	s.exhausted.Pools = append(s.exhausted.Pools, pool.Key)
	if largest != ipam.NoLength && (s.exhausted.Largest == ipam.NoLength || largest < s.exhausted.Largest) {
		s.exhausted.Largest = largest
	}
}

func (s *shortage) err() error {
	switch {
	case s.taken != nil:
		return s.taken
	case len(s.limits) > 0 && len(s.exhausted.Pools) == 0: // no pool will do once there is room
		return s.limits[len(s.limits)-1]
	}
	s.exhausted.Limits = s.limits
	return &s.exhausted
}

func objectUID(uid string) *types.UID {
	u := types.UID(uid)
	return &u
}
