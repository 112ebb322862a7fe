package ledger

import (
	"net/netip"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Ask represents a request for a block of one pool.
type Ask struct {
	Pool ipam.PoolKey
	// Bits is the prefix length.
	Bits     int
	Strategy ipam.Strategy
	// Block is the requested block, or the zero Prefix. AdditionalBlocks are requested with it.
	Block            netip.Prefix
	AdditionalBlocks []netip.Prefix
	// InUse reports that the holder has the block already: withheld space and an unknown pool do not
	// matter.
	InUse bool
	// Gateway is the gateway that the holder of such an address was given with it.
	Gateway netip.Addr
	// Record is the name under which the block will be recorded, and Holder its holder.
	Record ipam.Name
	Holder ipam.Holder
	// HolderUID is that of a stored pool: what its own records have of the blocks is no obstacle.
	HolderUID string
	// UnclaimedLimit bounds the unclaimed records of the holder's namespace, and those of its
	// project. Zero means no bound, not even by their share of the pool.
	UnclaimedLimit int
	// Project is the project of the holder; empty if it has none.
	Project string
	// Unlimited disables the limit of the pool.
	Unlimited bool
	// ClassLimit bounds the blocks of the class that one project can hold.
	Class      string
	ClassLimit ipam.Limit
	// Turn, if not nil, decides whether the holder can have a free block.
	Turn Turn
}

// Turn reports whether a holder can have the block now, or others come first. If it cannot, but can
// have another block, wantedBlock is the block that a waiter asks for there, and Turn is called again
// with the next free block after that. Turn is called under the ledger's lock, so that no block is freed
// between its answer and the hold, and must not call the Ledger.
type Turn func(room Room, block netip.Prefix) (isTurn bool, wantedBlock netip.Prefix)

// gatewayFor returns the gateway that is handed out with a block of the pool view.
func (a Ask) gatewayFor(b *poolView, block netip.Prefix) netip.Addr {
	switch _, gateway := b.pool.Subnet(block); {
	case a.InUse:
		return a.Gateway
	case a.Holder.IsPool():
		return netip.Addr{}
	default:
		return gateway
	}
}

// blocks returns all requested blocks.
func (a Ask) blocks() []netip.Prefix { return append([]netip.Prefix{a.Block}, a.AdditionalBlocks...) }

// isOwn reports whether an entry is an own record of the stored pool that asks.
func (a Ask) isOwn(e *entry) bool {
	return a.HolderUID != "" && a.HolderUID == e.holderUID && a.Holder == e.holder() && a.Holder.IsPool()
}

// usageIn returns the usage of the requested block.
func (a Ask) usageIn(b *poolView) ipam.Usage {
	if a.Block.IsValid() {
		return ipam.UsageOf(a.blocks()...)
	}
	return ipam.UsageOf(netip.PrefixFrom(b.pool.CIDR.Addr(), a.Bits))
}
