package ipam

import "net/netip"

// Terms are what a request comes to once class and pools have had their say:
// everything that finding a block needs.
type Terms struct {
	Class   string
	Family  Family
	Length  int
	Block   netip.Prefix
	Reclaim Reclaim
	// Single and BlockField are as the request says.
	Single     bool
	BlockField string

	Selection Selection
	// Strategy and OnExhaustion are empty where each pool's own counts.
	Strategy     Strategy
	OnExhaustion OnExhaustion
	// Retains says that the block is to be kept once its holder is gone, and by which
	// field: empty where it is not.
	Retains string
	// Sticky is the request's.
	Sticky string
}

// WhenExhausted is what becomes of the request when none of the pools has room.
func (t Terms) WhenExhausted(pools []Pool) OnExhaustion {
	switch {
	case t.OnExhaustion != "":
		return t.OnExhaustion
	case len(pools) > 0:
		return pools[0].OnExhaustion
	default:
		return OnExhaustionWait
	}
}
