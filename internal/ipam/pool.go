package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// Revision is a version of a spec: an object's UID, and its generation, which changes
// with the spec and not with the status.
type Revision struct {
	UID        string
	Generation int64
}

// Pool is a pool as its spec states it.
type Pool struct {
	Key PoolKey
	// Spec is the version that this is; zero where that is not known.
	Spec Revision
	// CIDR is the zero Prefix while a child pool has none yet.
	CIDR   netip.Prefix
	Family Family
	// Home is where the pool's own CIDR is recorded: its parent, or its routing
	// domain.
	Home PoolKey
	// Length of a child pool that is still to be carved, else that of CIDR.
	Length int

	// Withheld is never handed out; nil: nothing is withheld.
	Withheld     *space.Ranges
	Lengths      Lengths
	Strategy     Strategy
	Network      *Network
	OnExhaustion OnExhaustion
	ReuseDelay   time.Duration
	// Limit is what one project may hold of the pool.
	Limit Limit
	// AllowRetain lets claims that name the pool itself have their block retained.
	AllowRetain bool
	// Retention is how long a retained block is kept where no class says; zero: for
	// the default.
	Retention time.Duration

	Classes    []string
	Labels     map[string]string
	Visibility Visibility
	Project    string

	// OpenSince is when the pool first handed out blocks, in whole seconds; zero where it
	// never has, or that is not known yet.
	OpenSince time.Time

	// ParentGranted says that its maker had the right to use the parent.
	ParentGranted bool
	// Paused and Terminating pools hand out nothing; releases go on.
	Paused, Terminating bool
}

// Network is the subnet to which the addresses of a pool belong.
type Network struct {
	Length int
	// Gateway is the zero Addr where there is none.
	Gateway netip.Addr

	// DNSServers, SearchDomains, MTU (bytes) and VLAN are for the holder of an
	// address; empty and 0 where the pool does not say.
	DNSServers    []netip.Addr
	SearchDomains []string
	MTU, VLAN     int
}

// IsChild reports whether the pool is a block of another pool.
func (p Pool) IsChild() bool { return p.Home.Kind != PoolKindRoutingDomain }

// Has reports whether a block lies within the pool's CIDR.
func (p Pool) Has(block netip.Prefix) bool {
	return p.CIDR.Bits() <= block.Bits() && p.CIDR.Contains(block.Addr())
}

// Subnet returns the prefix length and the gateway to configure with a block of the pool:
// those of its network, else the length of its CIDR and no gateway; with a block of more than
// one address the length of the block.
func (p Pool) Subnet(block netip.Prefix) (bits int, gateway netip.Addr) {
	switch {
	case !block.IsSingleIP():
		return block.Bits(), netip.Addr{}
	case p.Network != nil:
		return p.Network.Length, p.Network.Gateway
	}
	return p.CIDR.Bits(), netip.Addr{}
}

// LargestBlock returns the length of the largest block that the pool could hand out if
// nothing were in use: NoLength where there is none. The pool has a CIDR.
func (p Pool) LargestBlock() int {
	if p.Withheld == nil {
		return p.CIDR.Bits()
	}
	if bits, ok := p.Withheld.LargestGap(); ok {
		return bits
	}
	return NoLength
}

// Names reports whether the pool has a class in its classNames. Whether it backs that
// class, Class.Excludes decides.
func (p Pool) Names(class string) bool { return slices.Contains(p.Classes, class) }

// Class is the policy for a kind of address space.
type Class struct {
	Name string
	// Native classes are served by Cadastre itself.
	Native    bool
	Family    Family
	Selection Selection
	// Strategy, OnExhaustion and ReuseDelay are empty, or negative, where the
	// class leaves them to the pool.
	Strategy     Strategy
	OnExhaustion OnExhaustion
	ReuseDelay   time.Duration

	// Lengths are what the class allows; Length is the default, or NoLength.
	Lengths Lengths
	Length  int

	Reclaim Reclaim
	// Limit is what one project may hold of the class, over all its pools.
	Limit Limit
	// AllowRetain lets claims of the class have their block retained.
	AllowRetain bool
	// Retention is how long a retained block is kept; zero: as the pool says.
	Retention  time.Duration
	Visibility Visibility
	Project    string
	// LocalPools lets a namespace's own pools back the class.
	LocalPools bool
}

// Excludes returns a *PolicyError if a pool that names the class does not back it: it
// is of the other family, or a namespace's own where the class does not allow these.
func (c Class) Excludes(pool Pool) error {
	switch {
	case pool.Key.Namespace != "" && !c.LocalPools:
		return &PolicyError{
			Verdict: LocalPoolNotAllowed, Field: "spec.className", Value: c.Name,
			Remedy: fmt.Sprintf("the class does not allow LocalIPPools (allowLocalPools), such as %s: name the pool itself by spec.poolRef, or another class", pool.Key),
		}
	case pool.Family != "" && pool.Family != c.Family:
		return &PolicyError{
			Verdict: FamilyMismatch, Field: "spec.className", Value: c.Name,
			Remedy: fmt.Sprintf("the class hands out %s, and %s is %s: name a class of the family that you need", c.Family, pool.Key, pool.Family),
		}
	}
	return nil
}
