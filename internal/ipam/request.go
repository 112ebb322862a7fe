package ipam

import (
	"net/netip"
	"slices"
)

// Request is what a claim asks for, or a child pool of its parent.
type Request struct {
	// Claim is zero, and Child is not, where it is a pool that asks.
	Claim Name
	Child PoolKey
	// Tenant is who asks.
	Tenant Tenant
	// Granted reports whether the requester has the right to use the pool that is named,
	// where that takes one.
	Granted bool
	// RequestedBy is the user who created the claim, where the claim waits and that is
	// known.
	RequestedBy string

	// At most one of Class, Pool and Selects is set.
	Class string
	Pool  PoolKey
	// Selects picks pools by their labels.
	Selects func(labels map[string]string) bool
	// Selector is a hash of Selects: of two requests that have the same, both pick the same
	// pools. Empty where that is not known.
	Selector string
	// SelectorBytes is about how much memory Selects takes.
	SelectorBytes int

	// Family is empty, and Length NoLength, where the claim does not say.
	Family Family
	Length int
	// Single says that one address is asked for, whatever length the class hands out
	// by default: it is one of Cluster API's claims.
	Single bool
	// Block is the very block that is asked for, or the zero Prefix.
	Block netip.Prefix
	// BlockField is the field that states Block; empty: spec.cidr.
	BlockField string
	// Reclaim is empty where the claim does not say.
	Reclaim Reclaim
	// Sticky is the key by which the block of an earlier claim is asked for, and
	// by which a later one gets it; empty where there is none.
	Sticky string
}

// Wants is what a request would take, and from which pools; without pools it waits for
// something that is missing or not allowed.
type Wants struct {
	Pools []PoolKey
	// Length is the prefix length.
	Length int
	// Account is for which project and class the block would count.
	Account Account
}

// Equal reports whether both are the same.
func (w Wants) Equal(other Wants) bool {
	return w.Length == other.Length && w.Account == other.Account && slices.Equal(w.Pools, other.Pools)
}

// Tenant is on whose behalf something is asked for.
type Tenant struct {
	// Project of the namespace.
	Project string
	// Platform reports whether that is the platform's own project.
	Platform bool
}

// ParentRequest is what a child pool asks of its parent.
func (p Pool) ParentRequest() Request {
	return Request{Child: p.Key, Granted: p.ParentGranted, Pool: p.Home, Family: p.Family, Length: p.Length, Block: p.CIDR}
}
