package allocator

import (
	"errors"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// shortage collects what pools say that have no room.
type shortage struct {
	exhausted ipam.ExhaustedError
	taken     *ipam.TakenError
	// limits are what the project has reached, in pools that may have room.
	limits []*ipam.LimitError
}

func (o Order) exhausted() *shortage {
	return &shortage{exhausted: ipam.ExhaustedError{Bits: o.Terms.Length, Largest: ipam.NoLength, OnExhaustion: o.Terms.WhenExhausted(o.Pools)}}
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

// poolClosed says that nothing is handed out from a pool.
func poolClosed(holder ipam.Holder, pool ipam.PoolKey) error {
	reason := v1alpha1.ReasonPoolNotReady
	if holder.IsPool() {
		reason = v1alpha1.ReasonParentNotReady
	}
	return &ipam.MissingError{Reason: reason, Message: pool.String() + " is being released, or its CIDR is not recorded: wait until it is ready, or use another pool"}
}
