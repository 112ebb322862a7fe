package ipclaim

import (
	"errors"
	"time"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// scope is what one pass knows of a claim.
type scope struct {
	claim *v1alpha1.IPClaim
	// request is set by read.
	request ipam.Request
	// record is set by bind or verify: the claim's block is held.
	record ipam.Record
	// conflict is set by verify: what else is recorded on the claim's block.
	conflict string
	// again is set by askAgain: when to ask again for the right to use the pool.
	again time.Duration
	// retry is set by hold where the claim has lost its turn: after how long it is tried
	// again.
	retry time.Duration
}

const kind = "IPClaim"

// errNotSeen means that the record exists, but not yet in the view. The
// claim is reconciled again when it turns up there.
var errNotSeen = errors.New("the allocation is not in the view yet")

func (c *Controller) order(s *scope, resolution inventory.Resolution) allocator.Order {
	order := allocator.Order{
		Resolution:  resolution,
		Origin:      allocator.OriginController,
		Holder:      convert.HolderOfClaim(s.request.Claim),
		HolderUID:   string(s.claim.UID),
		RequestedBy: s.request.RequestedBy,
	}
	order.Waiting = queue.Waiter{Since: s.claim.CreationTimestamp.Time, Holder: order.Holder, Request: s.request}
	return order
}
