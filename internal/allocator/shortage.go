package allocator

import (
	"errors"
	"slices"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// shortage collects what pools say that have no room.
type shortage struct {
	exhausted ipam.ExhaustedError
	// tried is what each of them says, and passedOver why others are not tried.
	tried, passedOver []ipam.PoolResult
}

func (o Order) exhausted() *shortage {
	return &shortage{
		exhausted:  ipam.ExhaustedError{Bits: o.Terms.Length, Largest: ipam.NoLength, OnExhaustion: o.Terms.WhenExhausted(o.Pools)},
		passedOver: o.PassedOver,
	}
}

// take notes an error that means no room, or that the room is for others, and reports
// whether it was one.
func (s *shortage) take(pool ipam.Pool, err error) bool {
	err = s.ofPool(pool, err)
	if !ipam.IsNoRoom(err) {
		return false
	}
	s.tried = append(s.tried, ipam.PoolResult{Pool: pool.Key, Err: err})
	return true
}

// ofPool is what the ledger says of one pool, for the request.
func (s *shortage) ofPool(pool ipam.Pool, err error) error {
	if errors.Is(err, ledger.ErrOutOfTurn) {
		return &ipam.ExhaustedError{OutOfTurn: true, Pools: []ipam.PoolKey{pool.Key}, Bits: s.exhausted.Bits, Largest: ipam.NoLength}
	}
	return err
}

// err is what all pools say together. It does not depend on the order in which they were
// tried, which changes with how much of each is in use.
func (s *shortage) err() error {
	ipam.SortByPool(s.tried)
	return ipam.WithPools(s.sum(), slices.Concat(s.tried, s.passedOver))
}

func (s *shortage) sum() error {
	var taken *ipam.TakenError
	var limits []*ipam.LimitError
	all := s.exhausted
	for _, tried := range s.tried {
		if full, ok := errors.AsType[*ipam.ExhaustedError](tried.Err); ok {
			all.OutOfTurn = all.OutOfTurn || full.OutOfTurn
			all.Pools = append(all.Pools, tried.Pool)
			all.Largest = larger(all.Largest, full.Largest)
		} else if limit, ok := errors.AsType[*ipam.LimitError](tried.Err); ok {
			limits = append(limits, limit)
		} else {
			errors.As(tried.Err, &taken)
		}
	}
	switch {
	case taken != nil:
		return taken
	case len(limits) > 0 && len(all.Pools) == 0: // no pool will do once there is room
		return limits[len(limits)-1]
	}
	all.Limits = limits
	return &all
}

// larger is the prefix length of the larger of two blocks, either of which may be
// ipam.NoLength.
func larger(a, b int) int {
	if a == ipam.NoLength || b == ipam.NoLength {
		return max(a, b)
	}
	return min(a, b)
}

// poolClosed says that nothing is handed out from a pool.
func poolClosed(holder ipam.Holder, pool ipam.PoolKey) error {
	reason := v1alpha1.ReasonPoolNotReady
	if holder.IsPool() {
		reason = v1alpha1.ReasonParentNotReady
	}
	return &ipam.MissingError{Reason: reason, Message: pool.String() + " is being released, or its CIDR is not recorded: wait until it is ready, or use another pool"}
}
