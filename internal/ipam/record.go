package ipam

import (
	"net/netip"
	"time"
)

// State says how a block is held.
type State string

// How a block is held: by its holder; kept after its holder is gone; not yet to
// be handed out again; as the space of a pool from which nothing is handed out any
// more, because it is about to be released.
const (
	StateBound     State = "Bound"
	StateRetained  State = "Retained"
	StateCooling   State = "Cooling"
	StateReleasing State = "Releasing"
)

// Purpose says what a block is held for.
type Purpose string

// What a block is held for.
const (
	PurposeClaim Purpose = "Claim"
	PurposePool  Purpose = "Pool"
)

// Record is an IPAllocation: that a block is held, by which holder, and from which pool.
type Record struct {
	Name Name
	// UID and Version identify one state of the object; empty before it exists.
	UID, Version string

	Block  netip.Prefix
	Pool   PoolKey
	Class  string
	Holder Holder
	// HolderUID is empty where the holder did not exist yet when the block was
	// recorded.
	HolderUID string

	Purpose      Purpose
	Reclaim      Reclaim
	State        State
	ReleaseAfter time.Time
	// Project is that of the holder when the block was recorded; empty where there is
	// none.
	Project     string
	RequestedBy string
	// Gateway is what was handed out with the address; the zero Addr where the record says
	// of none.
	Gateway netip.Addr
	// Sticky is the key by which a later claim of the namespace gets this block
	// again; empty where there is none.
	Sticky string
	// Adopted records were taken over by another process or another holder of
	// the same name than they were made by.
	Adopted bool
	// PoolUnknown records were made when their pool was not known: whether their
	// holder may use it is still to be judged.
	PoolUnknown bool
	// Terminating records still hold their block: held is what has not been
	// seen as deleted.
	Terminating bool
}

// IsStamped reports whether the record names the UID of its holder, which existed then.
func (r Record) IsStamped() bool { return r.HolderUID != "" }

// MayBeOf reports whether the record is of the holder with that UID as far as it says: it
// names no other one.
func (r Record) MayBeOf(uid string) bool { return !r.IsStamped() || r.HolderUID == uid }

// WasTakenOver reports whether the record was retained until a claim took it over that
// has not been stored as far as is known.
func (r Record) WasTakenOver() bool {
	return r.State == StateBound && !r.IsStamped() && !r.ReleaseAfter.IsZero()
}
