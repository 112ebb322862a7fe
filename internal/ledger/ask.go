package ledger

import (
	"errors"
	"net/netip"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// ErrLost means that another record overlapped the block first, or that ours is
// gone: give way, and try again.
var ErrLost = errors.New("another allocation was recorded first")

// ErrOutOfTurn means that Ask.MayTake did not let the holder have the block.
var ErrOutOfTurn = errors.New("it is the turn of another holder")

// UnknownPoolError means that the view has no pool of that name, or one that
// has no CIDR yet.
type UnknownPoolError struct{ Pool ipam.PoolKey }

func (e *UnknownPoolError) Error() string { return e.Pool.String() + " is not known" }

// Ask is a request for a block of one pool.
type Ask struct {
	Pool ipam.PoolKey
	// Bits is the prefix length.
	Bits     int
	Strategy ipam.Strategy
	// Block is the very block that is asked for, or the zero Prefix.
	Block netip.Prefix
	// InUse says that the holder has the block already: only another record is
	// in its way, not what is withheld, and the pool need not be known.
	InUse bool
	// Gateway is what the holder of such an address was given with it.
	Gateway netip.Addr
	// Record is the name under which it will be recorded, and Holder its holder.
	Record ipam.Name
	Holder ipam.Holder
	// UnclaimedLimit bounds the unclaimed records of the holder's namespace, and those of
	// its project; zero is no bound, nor one by their share of the pool.
	UnclaimedLimit int
	// Project is that of the holder; empty where it has none.
	Project string
	// Unlimited leaves the limit of the pool aside.
	Unlimited bool
	// Class by which the block is handed out, and what one project may hold of that.
	Class      string
	ClassLimit ipam.Limit
	// MayTake, if not nil, reports whether the holder may have a free block. Where it may
	// not, but may have another, wanted is what a waiter asks for there, and MayTake is
	// called again with the next free block after that. It is called under the ledger's
	// lock, so that no block is freed between its answer and the hold, and must not call
	// the Ledger.
	MayTake func(room Room, block netip.Prefix) (may bool, wanted netip.Prefix)
}

// gateway is what is handed out with a block of the book.
func (a Ask) gateway(b *book, block netip.Prefix) netip.Addr {
	switch _, gateway := b.pool.Subnet(block); {
	case a.InUse:
		return a.Gateway
	case a.Holder.IsPool():
		return netip.Addr{}
	default:
		return gateway
	}
}

// usage is what the block that is asked for comes to.
func (a Ask) usage(b *book) ipam.Usage {
	if a.Block.IsValid() {
		return ipam.UsageOf(a.Block)
	}
	return ipam.UsageOf(netip.PrefixFrom(b.pool.CIDR.Addr(), a.Bits))
}
