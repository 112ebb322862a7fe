package ipam

import "net/netip"

// Family is an address family.
type Family string

// The address families.
const (
	IPv4 Family = "IPv4"
	IPv6 Family = "IPv6"
)

// FamilyOf is the family of a block.
func FamilyOf(block netip.Prefix) Family {
	if block.Addr().Is4() {
		return IPv4
	}
	return IPv6
}

// Bits is the number of bits of an address: 32 or 128.
func (f Family) Bits() int {
	if f == IPv4 {
		return 32
	}
	return 128
}

// All is the block that holds every address of the family.
func (f Family) All() netip.Prefix {
	if f == IPv4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// Strategy says which of a pool's free blocks is handed out.
type Strategy string

// The strategies.
const (
	StrategyFirstFit Strategy = "FirstFit"
	StrategyBestFit  Strategy = "BestFit"
	StrategyWorstFit Strategy = "WorstFit"
	StrategyRandom   Strategy = "Random"
)

// Selection says which of several pools serves a claim.
type Selection string

// The selections.
const (
	SelectFirstFit      Selection = "FirstFit"
	SelectLeastUtilized Selection = "LeastUtilized"
	SelectMostUtilized  Selection = "MostUtilized"
)

// OnExhaustion says what becomes of a request for which there is no room.
type OnExhaustion string

// What becomes of a request for which there is no room.
const (
	OnExhaustionWait   OnExhaustion = "Wait"
	OnExhaustionReject OnExhaustion = "Reject"
)

// Reclaim says what becomes of a block when its holder is gone.
type Reclaim string

// What becomes of a block when its holder is gone.
const (
	ReclaimDelete Reclaim = "Delete"
	ReclaimRetain Reclaim = "Retain"
)

// Visibility says whose claims may use a pool or a class.
type Visibility string

// Whose claims may use a pool or a class.
const (
	VisibilityShared   Visibility = "Shared"
	VisibilityConsumer Visibility = "Consumer"
	VisibilityPlatform Visibility = "Platform"
)

// Lengths bounds prefix lengths, both ends included.
type Lengths struct{ Min, Max int }

// Contain reports whether a length lies within the bounds.
func (l Lengths) Contain(bits int) bool { return l.Min <= bits && bits <= l.Max }

// NoLength stands for a prefix length that nobody has stated.
const NoLength = -1
