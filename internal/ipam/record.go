// Package ipam is the vocabulary of address management, and its decisions:
// what a claim asks for, what a class and a pool allow, which pool serves it,
// and what is said when none can.
//
// It knows neither Kubernetes nor time: values go in, a value comes out. All
// types are values that may be shared freely once built; nothing here changes
// its arguments.
package ipam

import (
	"fmt"
	"net/netip"
	"strings"
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

// Counted is a number with its noun, for messages: 1 block, 2 blocks, 3 addresses.
func Counted[N int | int64](n N, noun string) string { return Numbered(n, noun, Plural(noun)) }

// Plural is the plural of a noun.
func Plural(noun string) string {
	if strings.HasSuffix(noun, "s") {
		return noun + "es"
	}
	return noun + "s"
}

// Numbered is a number with what there is one or more of: 1 claim waits, 2 claims wait.
func Numbered[N int | int64](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

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

// Name is the name of a namespaced object.
type Name struct{ Namespace, Name string }

// Holder is what holds a block, by name: a claim or a pool.
type Holder struct {
	// Group and Kind of the holder's API type.
	Group, Kind string
	// Namespace is empty for a cluster-scoped holder.
	Namespace, Name string
}

// IsPool reports whether the holder is a pool, which holds its own CIDR.
func (h Holder) IsPool() bool { return PoolKind(h.Kind).IsPool() }

func (h Holder) String() string {
	if h.Namespace == "" {
		return h.Kind + " " + h.Name
	}
	return h.Kind + " " + h.Namespace + "/" + h.Name
}

func (n Name) String() string { return n.Namespace + "/" + n.Name }

// PoolKey names a space. Blocks with the same key exclude each other: the name
// counts, not the UID, so that a pool that was forced away and made again finds
// its old records in use.
type PoolKey struct {
	Kind PoolKind
	// Namespace of a local pool, and of the routing domains of such; else empty.
	Namespace string
	Name      string
	// Family distinguishes the two spaces of a routing domain. Empty for pools.
	Family Family
}

// PoolKind is the kind of a space in which blocks exclude each other.
type PoolKind string

// The kinds of spaces: the platform's pools, those of a namespace's own, and
// routing domains, which are spaces too: what they hand out are the CIDRs of root
// pools.
const (
	PoolKindIPPool        PoolKind = "IPPool"
	PoolKindLocalIPPool   PoolKind = "LocalIPPool"
	PoolKindRoutingDomain PoolKind = "RoutingDomain"
)

// IsPool reports whether this is a kind of pool.
func (k PoolKind) IsPool() bool { return k == PoolKindIPPool || k == PoolKindLocalIPPool }

// PoolNamed is the key of a cluster-scoped pool.
func PoolNamed(name string) PoolKey { return PoolKey{Kind: PoolKindIPPool, Name: name} }

// LocalPoolNamed is the key of a namespace's own pool.
func LocalPoolNamed(namespace, name string) PoolKey {
	return PoolKey{Kind: PoolKindLocalIPPool, Namespace: namespace, Name: name}
}

// DomainNamed is the key of one family of a routing domain of cluster-scoped
// pools.
func DomainNamed(name string, family Family) PoolKey {
	return PoolKey{Kind: PoolKindRoutingDomain, Name: name, Family: family}
}

// LocalDomainNamed is the key of one family of a routing domain of a namespace's
// own; that of DomainNamed where the namespace is empty. No other space has it,
// whatever the names.
func LocalDomainNamed(namespace, name string, family Family) PoolKey {
	return PoolKey{Kind: PoolKindRoutingDomain, Namespace: namespace, Name: name, Family: family}
}

// FullName returns the name, with the namespace if there is one.
func (k PoolKey) FullName() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

func (k PoolKey) String() string {
	if k.Kind == PoolKindRoutingDomain {
		return "routing domain " + k.FullName()
	}
	return "pool " + k.FullName()
}
