package allocator

import (
	"context"
	"errors"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

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
	// Sticky is the key by which a later claim gets the block again.
	Sticky string
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
		ask, ok := a.ask(order, pool)
		if !ok {
			exhausted.add(pool, ipam.NoLength)
			continue
		}
		block, err := a.ledger.Peek(ask)
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
// turn then.
//
// Errors: *ipam.ExhaustedError, *ipam.TakenError, ipam.ErrNotSynced,
// ipam.ErrUnconfirmed, ipam.ErrCrowded, ipam.ErrTooManyUnbound, or the API's own.
// After any error nothing is held, or it will be collected.
func (a *Allocator) Grant(ctx context.Context, order Order) (ipam.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmWithin)
	defer cancel()
	if record, ok := a.retake(ctx, order); ok {
		return record, nil
	}
	frees := a.ledger.Frees(order.keys())
	record, err := a.grant(ctx, order)
	if !noRoom(err) || a.queue.Has(order.Holder) || !a.awaitRelease(ctx, order, frees, err) {
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
		ask, ok := a.ask(order, pool)
		if !ok {
			exhausted.add(pool, ipam.NoLength)
			i++
			continue
		}
		record, err := a.try(ctx, order, ask)
		switch {
		case err == nil:
			return record, nil
		case errors.Is(err, ledger.ErrLost):
			order.Record = order.renamed() // and the next block of the same pool
		case errors.Is(err, ledger.ErrFreed) && ctx.Err() == nil: // who waits for it comes first
		case errors.Is(err, ledger.ErrFreed):
			return ipam.Record{}, unavailable(ctx, err)
		case exhausted.take(pool, err):
			i++
		default:
			return ipam.Record{}, err
		}
	}
	return ipam.Record{}, exhausted.err()
}

// ask is what is asked of the ledger; false where that would overtake a claim
// that waits. Where somebody does, a block that is freed between this and the hold is
// nobody's yet.
func (a *Allocator) ask(order Order, pool ipam.Pool) (ledger.Ask, bool) {
	ask := ledger.Ask{
		Pool: pool.Key, Bits: order.Terms.Length, Block: order.Terms.Block,
		Strategy: pool.Strategy, Record: order.Record, Holder: order.Holder,
	}
	if a.queue.Len() > 0 {
		ask.Frees = new(a.ledger.Frees([]ipam.PoolKey{pool.Key}))
		if a.overtakes(order, pool) {
			return ledger.Ask{}, false
		}
	}
	if order.Terms.Strategy != "" {
		ask.Strategy = order.Terms.Strategy
	}
	if order.isUnbound() {
		ask.UnboundLimit = a.unboundLimit()
	}
	return ask, true
}

// inUse asks the ledger for a block that the holder has already.
func (o Order) inUse(pool ipam.PoolKey, limit int) ledger.Ask {
	ask := ledger.Ask{
		Pool: pool, Bits: o.Terms.Length, Block: o.Terms.Block,
		Record: o.Record, Holder: o.Holder, InUse: true,
	}
	if o.isUnbound() {
		ask.UnboundLimit = limit
	}
	return ask
}

// isUnbound says whether the record will name nobody who is known to exist. What is
// recorded for cluster-scoped pools is up to those who may make them.
func (o Order) isUnbound() bool { return o.HolderUID == "" && o.Holder.Namespace != "" }

// try finds a block in one pool, records and confirms it. Controllers have a bound
// of their own, and no API server that waits for their answer.
func (a *Allocator) try(ctx context.Context, order Order, ask ledger.Ask) (ipam.Record, error) {
	hold, err := a.ledger.Hold(ask)
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
// A record that may have been created although the call failed is disowned, where
// its name is this attempt's alone. Where it is the holder's, the record that turns
// up may be that of another attempt, which has been answered by then: it is left
// for the holder's next attempt to take over, or else to the collection of orphans.
func (a *Allocator) confirm(ctx context.Context, hold *ledger.Hold, order Order) (ipam.Record, error) {
	record := order.record(hold.Pool, hold.Block)
	obj := adapt.Allocation(record)
	if err := a.client.Create(ctx, obj); err != nil {
		if refused(err) || order.nameIsFixed() {
			hold.Drop()
		} else {
			hold.Disown()
		}
		return ipam.Record{}, unavailable(ctx, err)
	}
	record.UID, record.Version = string(obj.UID), obj.ResourceVersion
	err := hold.Confirm(ctx, record.UID)
	switch {
	case err == nil:
		return record, nil
	case !order.nameIsFixed():
		a.discard(record)
		return ipam.Record{}, err
	case errors.Is(err, ledger.ErrLost): // the name is needed again
		return ipam.Record{}, errors.Join(err, a.Release(ctx, record))
	default: // it may be seen yet, and the holder name it: its next attempt takes it over
		return ipam.Record{}, err
	}
}

// refused says whether a create call that failed surely created nothing.
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
		Reclaim: o.Terms.Reclaim, State: ipam.Bound, RequestedBy: o.RequestedBy, Sticky: o.Sticky,
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

// nameIsFixed says whether the record's name is that of the holder's next attempt too.
func (o Order) nameIsFixed() bool {
	return o.HolderUID != "" || o.purpose() == ipam.ForPool || o.Record == BindName(o.Holder, "")
}

func (o Order) purpose() ipam.Purpose {
	if o.Holder.IsPool() {
		return ipam.ForPool
	}
	return ipam.ForClaim
}

// AttemptName is a name for the record of one attempt to serve a claim that
// does not exist yet.
func AttemptName(holder ipam.Holder) ipam.Name {
	return ipam.Name{Namespace: holder.Namespace, Name: prefixOf(holder.Name) + "-" + randomSuffix()}
}

// prefixOf leaves room for a suffix of nine characters in a name of 253.
func prefixOf(name string) string { return name[:min(len(name), longestName-9)] }

// shortage collects what pools say that have no room.
type shortage struct {
	exhausted ipam.ExhaustedError
	taken     *ipam.TakenError
}

func (o Order) exhausted() *shortage {
	s := &shortage{exhausted: ipam.ExhaustedError{Bits: o.Terms.Length, Largest: ipam.NoLength, OnExhaustion: o.Terms.OnExhaustion}}
	if s.exhausted.OnExhaustion == "" {
		s.exhausted.OnExhaustion = ipam.Wait
		if len(o.Pools) > 0 {
			s.exhausted.OnExhaustion = o.Pools[0].OnExhaustion
		}
	}
	return s
}

// take notes an error that means no room, and says whether it was one.
func (s *shortage) take(pool ipam.Pool, err error) bool {
	if exhausted, ok := errors.AsType[*ipam.ExhaustedError](err); ok {
		s.add(pool, exhausted.Largest)
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
	if s.taken != nil {
		return s.taken
	}
	return &s.exhausted
}

func objectUID(uid string) *types.UID {
	u := types.UID(uid)
	return &u
}
