package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"

	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// Revision identifies a version of a spec: an object's UID, and its generation, which changes
// with the spec and not with the status.
type Revision struct {
	UID        string
	Generation int64
}

// Pool holds a pool as its spec states it.
type Pool struct {
	Key PoolKey
	// Spec is the version of the spec that this is; zero if it is not known.
	Spec Revision
	// CIDR is the zero Prefix while a child pool has none yet.
	CIDR   netip.Prefix
	Family Family
	// Occupied has the addresses that the pool holds if it occupies its ranges alone; nil if it
	// holds all of CIDR.
	Occupied *space.Ranges
	// Home is the space in which the pool's own CIDR is recorded: its parent, or its routing
	// domain.
	Home PoolKey
	// Length of a child pool that is still to be carved, else that of CIDR.
	Length int

	// Withheld is never handed out; nil if nothing is withheld.
	Withheld     *space.Ranges
	Lengths      Lengths
	Strategy     Strategy
	Network      *Network
	OnExhaustion OnExhaustion
	ReuseDelay   time.Duration
	// Limit is the most that one project can hold of the pool.
	Limit Limit
	// Retention is the time for which a retained block is kept if no class states one; zero:
	// for the default.
	Retention time.Duration

	Classes    []string
	Labels     map[string]string
	Visibility Visibility
	Project    string

	// OpenSince is the time when the pool first handed out blocks, in whole seconds; zero if it
	// never has, or if that is not known yet.
	OpenSince time.Time

	// ParentGrant is the right of the pool's creator to use the parent; nil if there is none.
	ParentGrant *Grant
	// AllowRetain lets claims that name the pool itself have their block retained.
	AllowRetain bool
	// Paused and Terminating pools hand out nothing; releases go on.
	Paused, Terminating bool
}

// Network holds the subnet to which the addresses of a pool belong.
type Network struct {
	Length int
	// Gateway is the zero Addr if there is none.
	Gateway netip.Addr

	// DNSServers, SearchDomains, MTU (bytes) and VLAN are for the holder of an address; empty
	// and 0 if the pool does not state them.
	DNSServers    []netip.Addr
	SearchDomains []string
	MTU, VLAN     int
}

// IsChild reports whether the pool is a block of another pool.
func (p Pool) IsChild() bool { return p.Home.Kind != PoolKindRoutingDomain }

// Blocks returns what the pool holds of its home, in as few blocks as possible, sorted; nil while it
// has no CIDR.
func (p Pool) Blocks() []netip.Prefix {
	if p.Occupied == nil && p.CIDR.IsValid() {
		return []netip.Prefix{p.CIDR}
	}
	return BlocksOf(p.Occupied)
}

// BlocksOf returns the fewest blocks that have exactly some addresses, sorted.
func BlocksOf(ranges *space.Ranges) []netip.Prefix {
	var blocks []netip.Prefix
	for r := range ranges.All() {
		blocks = netipx.IPRangeFrom(r.From, r.To).AppendPrefixes(blocks)
	}
	return blocks
}

// Has reports whether a block lies within what the pool holds.
func (p Pool) Has(block netip.Prefix) bool {
	return Covers(p.CIDR, block) && (p.Occupied == nil || p.Occupied.SizeIn(block) == space.CountOf(block))
}

// Extent returns what the pool holds, for messages.
func (p Pool) Extent() string {
	if p.Occupied != nil {
		return "ranges of " + p.CIDR.String()
	}
	return p.CIDR.String()
}

// Size returns the number of addresses that the pool holds.
func (p Pool) Size() space.Count {
	if p.Occupied != nil {
		return p.Occupied.Size()
	}
	return space.CountOf(p.CIDR)
}

// Covers reports whether all of a block lies within another one.
func Covers(outer, block netip.Prefix) bool {
	return outer.Bits() <= block.Bits() && outer.Contains(block.Addr())
}

// Subnet returns the prefix length and the gateway to configure with a block of the pool: those
// of its network, else the length of its CIDR and no gateway. For a block of more than one
// address, it returns the length of the block.
func (p Pool) Subnet(block netip.Prefix) (bits int, gateway netip.Addr) {
	switch {
	case !block.IsSingleIP():
		return block.Bits(), netip.Addr{}
	case p.Network != nil:
		return p.Network.Length, p.Network.Gateway
	}
	return p.CIDR.Bits(), netip.Addr{}
}

// LargestBlock returns the length of the largest block that the pool could hand out if nothing
// were in use, or NoLength if there is none. The pool has a CIDR.
func (p Pool) LargestBlock() int {
	if p.Withheld == nil {
		return p.CIDR.Bits()
	}
	if bits, ok := p.Withheld.LargestGap(); ok {
		return bits
	}
	return NoLength
}

// Names reports whether the pool has a class in its classNames. Class.Excludes decides whether
// it backs that class.
func (p Pool) Names(class string) bool { return slices.Contains(p.Classes, class) }

// Class holds the policy for a kind of address space.
type Class struct {
	Name string
	// Provisioner makes the pools of the class when claims wait for one; empty if people do.
	Provisioner string
	Family      Family
	Selection   Selection
	// Strategy, OnExhaustion and ReuseDelay are empty, or negative, if the class leaves them to
	// the pool.
	Strategy     Strategy
	OnExhaustion OnExhaustion
	ReuseDelay   time.Duration

	// Lengths are the lengths that the class allows; Length is the default, or NoLength.
	Lengths Lengths
	Length  int

	Reclaim Reclaim
	// Limit is the most that one project can hold of the class, over all its pools.
	Limit Limit
	// AllowRetain lets claims of the class have their block retained.
	AllowRetain bool
	// Retention is the time for which a retained block is kept; zero: the pool's time.
	Retention  time.Duration
	Visibility Visibility
	Project    string
	// LocalPools lets a namespace's own pools back the class.
	LocalPools bool
}

// Excludes returns a *PolicyError if a pool that names the class does not back it: the pool is
// of the other family, or it is a namespace's own and the class does not allow these.
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

// Family represents an address family.
type Family string

// The address families.
const (
	IPv4 Family = "IPv4"
	IPv6 Family = "IPv6"
)

// FamilyOf returns the family of a block.
func FamilyOf(block netip.Prefix) Family {
	if block.Addr().Is4() {
		return IPv4
	}
	return IPv6
}

// Bits returns the number of bits of an address: 32 or 128, and 128 if the family is not known.
func (f Family) Bits() int {
	if f == IPv4 {
		return 32
	}
	return 128
}

// All returns the block that holds every address of the family.
func (f Family) All() netip.Prefix {
	if f == IPv4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// Strategy represents the choice among the free blocks of a pool.
type Strategy string

// The strategies.
const (
	StrategyFirstFit Strategy = "FirstFit"
	StrategyBestFit  Strategy = "BestFit"
	StrategyWorstFit Strategy = "WorstFit"
	StrategyRandom   Strategy = "Random"
)

// Selection represents the choice among several pools that can serve a claim.
type Selection string

// The selections.
const (
	SelectFirstFit      Selection = "FirstFit"
	SelectLeastUtilized Selection = "LeastUtilized"
	SelectMostUtilized  Selection = "MostUtilized"
)

// OnExhaustion represents the treatment of a request for which there is no room.
type OnExhaustion string

// The treatments of a request for which there is no room.
const (
	OnExhaustionWait   OnExhaustion = "Wait"
	OnExhaustionReject OnExhaustion = "Reject"
)

// Reclaim represents the treatment of a block when its holder is gone.
type Reclaim string

// The treatments of a block when its holder is gone.
const (
	ReclaimDelete Reclaim = "Delete"
	ReclaimRetain Reclaim = "Retain"
)

// Visibility represents the set of tenants whose claims can use a pool or a class.
type Visibility string

// The sets of tenants whose claims can use a pool or a class.
const (
	VisibilityShared   Visibility = "Shared"
	VisibilityConsumer Visibility = "Consumer"
	VisibilityPlatform Visibility = "Platform"
)

// Lengths bounds prefix lengths, both ends included.
type Lengths struct{ Min, Max int }

// Contain reports whether a length lies within the bounds.
func (l Lengths) Contain(bits int) bool { return l.Min <= bits && bits <= l.Max }

// NoLength stands for a prefix length that is not stated.
const NoLength = -1

// Usage holds the held amount: the number of blocks, and of the addresses in them.
type Usage struct{ Blocks, Addresses space.Count }

// UsageOf returns the usage of some blocks.
func UsageOf(blocks ...netip.Prefix) Usage {
	var total Usage
	for _, block := range blocks {
		total = total.Add(Usage{Blocks: space.CountOf64(1), Addresses: space.CountOf(block)})
	}
	return total
}

// Add returns the sum of both usages.
func (u Usage) Add(other Usage) Usage {
	return Usage{Blocks: u.Blocks.Add(other.Blocks), Addresses: u.Addresses.Add(other.Addresses)}
}

// Sub returns the usage without the other one.
func (u Usage) Sub(other Usage) Usage {
	return Usage{Blocks: u.Blocks.Sub(other.Blocks), Addresses: u.Addresses.Sub(other.Addresses)}
}

// Maximum holds an upper bound. The zero value sets no bound.
type Maximum struct {
	Set   bool
	Count space.Count
}

func (m Maximum) allows(n space.Count) bool { return !m.Set || n.Cmp(m.Count) <= 0 }

// Limit holds the bounds of the holdings of one project. The zero value sets none.
type Limit struct{ Blocks, Addresses Maximum }

// IsSet reports whether there is any limit.
func (l Limit) IsSet() bool { return l.Blocks.Set || l.Addresses.Set }

// Account holds the project and the class for which a block counts, and the limit that the
// class sets for the project.
type Account struct {
	Project, Class string
	ClassLimit     Limit
}

// Check returns a *LimitError if a project that holds that much of something would exceed the
// limit with more of it. A request of no project has no limit.
func (l Limit) Check(subject, project string, held, extra Usage) error {
	if project == "" {
		return nil
	}
	total := held.Add(extra)
	switch {
	case !l.Blocks.allows(total.Blocks):
		return &LimitError{Subject: subject, Project: project, Unit: "block", Most: l.Blocks.Count, Held: held.Blocks}
	case !l.Addresses.allows(total.Addresses):
		return &LimitError{Subject: subject, Project: project, Unit: "address", Most: l.Addresses.Count, Held: held.Addresses}
	}
	return nil
}

// MayUse reports whether a tenant can use a pool or a class of the visibility and project.
func (t Tenant) MayUse(visibility Visibility, project string) bool {
	switch visibility {
	case VisibilityConsumer:
		return t.Project == project
	case VisibilityPlatform:
		return t.Platform
	default:
		return true
	}
}

// Namespace returns the namespace of the requester; empty for a cluster-scoped pool.
func (r Request) Namespace() string { return cmp.Or(r.Claim.Namespace, r.Child.Namespace) }

// MayUse reports whether the request can be served from a pool that it does not name: one of
// its namespace's own, or one that is visible to its tenant.
func (r Request) MayUse(pool Pool) bool {
	if pool.Key.Namespace != "" {
		return pool.Key.Namespace == r.Namespace()
	}
	return r.Namespace() == "" || r.Tenant.MayUse(pool.Visibility, pool.Project)
}

// MayName reports whether the request can name the pool. A pool that it cannot name is answered
// like one that does not exist.
func (r Request) MayName(pool Pool) bool {
	return r.MayUse(pool) && (r.Grant.covers(pool) || !r.NeedsGrant(pool))
}

// NeedsGrant reports whether a request needs more than the pool's visibility to name it. A
// claim needs more if a cluster-scoped pool belongs to another project. A namespace's own pool
// always does, because its block leaves the platform's hands. Pools of the requester's own
// namespace need nothing.
func (r Request) NeedsGrant(pool Pool) bool {
	if pool.Key.Kind.IsNamespaced() {
		return false
	}
	return r.Child.Kind == PoolKindLocalIPPool || pool.Project != "" && pool.Project != r.Tenant.Project
}
