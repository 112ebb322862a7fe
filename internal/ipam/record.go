// Package ipam holds the vocabulary and the decisions of address management: what a claim
// requests, what a class and a pool allow, which pool serves the claim, and which error
// explains that none can.
//
// It knows neither Kubernetes nor time: values go in, a value comes out. All
// types are values that may be shared freely once built; nothing here changes
// its arguments.
package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// State represents the way in which a block is held.
type State string

// The states of a block: held by its holder; kept after its holder is gone; not yet to be
// handed out again; held as the space of a pool from which nothing is handed out any more,
// because it is about to be released.
const (
	StateBound     State = "Bound"
	StateRetained  State = "Retained"
	StateCooling   State = "Cooling"
	StateReleasing State = "Releasing"
)

// Purpose represents the purpose for which a block is held.
type Purpose string

// The purposes for which a block is held.
const (
	PurposeClaim Purpose = "Claim"
	PurposePool  Purpose = "Pool"
)

// Record represents an IPAllocation: a held block, its holder, and its pool.
type Record struct {
	Name Name
	// UID and Version identify one state of the object; empty before it exists.
	UID, Version string

	Block netip.Prefix
	// AdditionalBlocks are held together with Block: they are of the same pool and family.
	AdditionalBlocks []netip.Prefix

	Pool   PoolKey
	Class  string
	Holder Holder
	// HolderUID is empty if the holder did not exist yet when the block was recorded.
	HolderUID string

	Purpose      Purpose
	Reclaim      Reclaim
	State        State
	ReleaseAfter time.Time
	// Project is the holder's project when the block was recorded; empty if there is none.
	Project     string
	RequestedBy string
	// Gateway was handed out with the address; the zero Addr if the record names none.
	Gateway netip.Addr
	// Sticky is the key by which a later claim of the namespace gets this block again; empty if
	// there is none.
	Sticky string
	// Adopted records were taken over: they were made by another process, or by another holder
	// of the same name.
	Adopted bool
	// PoolUnknown records were made when their pool was not known. Whether their holder can use
	// the pool is still to be judged.
	PoolUnknown bool
	// Terminating records still hold their block: a block is held until its record has been
	// seen as deleted.
	Terminating bool
}

// Blocks returns all blocks of the record.
func (r Record) Blocks() []netip.Prefix {
	return append([]netip.Prefix{r.Block}, r.AdditionalBlocks...)
}

// IsStamped reports whether the record names the UID of its holder, which existed then.
func (r Record) IsStamped() bool { return r.HolderUID != "" }

// MayBeOf reports whether the record may belong to the holder with that UID: it names no other
// one.
func (r Record) MayBeOf(uid string) bool { return !r.IsStamped() || r.HolderUID == uid }

// WasTakenOver reports whether the record was retained until a claim took it over that, as far
// as is known, has not been stored.
func (r Record) WasTakenOver() bool {
	return r.State == StateBound && !r.IsStamped() && !r.ReleaseAfter.IsZero()
}

// FormatCount returns a number with its noun, for messages: 1 block, 2 blocks, 3 addresses.
func FormatCount[N int | int64](n N, noun string) string { return FormatNumber(n, noun, Plural(noun)) }

// Plural returns the plural of a noun.
func Plural(noun string) string {
	if strings.HasSuffix(noun, "s") {
		return noun + "es"
	}
	return noun + "s"
}

// FormatNumber returns a number with the phrase for one or for more: 1 claim waits, 2 claims wait.
func FormatNumber[N int | int64](n N, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return fmt.Sprintf("%d %s", n, plural)
}

// FormatList returns the names of the first of several things, and the number of the others.
func FormatList[T any](items []T, limit int, name func(T) string, separator string) string {
	var names []string
	for _, one := range items[:min(len(items), limit)] {
		names = append(names, name(one))
	}
	if omitted := len(items) - len(names); omitted > 0 {
		names = append(names, fmt.Sprintf("and %d more", omitted))
	}
	return strings.Join(names, separator)
}

// FirstFew returns the first three of several texts, and the number of the others.
func FirstFew(texts []string) string {
	return FormatList(texts, 3, func(text string) string { return text }, ", ")
}

// JoinTexts returns all of several texts in words: a, b and c.
func JoinTexts(texts []string) string {
	if len(texts) < 2 {
		return strings.Join(texts, "")
	}
	last := len(texts) - 1
	return strings.Join(texts[:last], ", ") + " and " + texts[last]
}

// Terms holds the request combined with its class and pools: everything that finding a block
// needs.
type Terms struct {
	Class string
	// Provisioner is that of the class.
	Provisioner string
	Family      Family
	Length      int
	Block       netip.Prefix
	Reclaim     Reclaim
	// Single and BlockField come from the request.
	Single     bool
	BlockField string

	Selection Selection
	// Strategy and OnExhaustion are empty if each pool's own counts.
	Strategy     Strategy
	OnExhaustion OnExhaustion
	// Retains is the field that asks for the block to be kept once its holder is gone; empty if
	// none does.
	Retains string
	// Sticky is the sticky key of the request.
	Sticky string
}

// WhenExhausted returns the treatment of the request when none of the pools has room.
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

// Name holds the name of a namespaced object.
type Name struct{ Namespace, Name string }

// Holder identifies the claim or the pool that holds a block, by name.
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

// PoolKey names a space. Blocks with the same key exclude each other. The name counts, not the
// UID, so that a pool that was forced away and made again finds its old records in use.
type PoolKey struct {
	Kind PoolKind
	// Namespace of a local pool, and of the routing domains of such; else empty.
	Namespace string
	Name      string
	// Family distinguishes the two spaces of a routing domain. Empty for pools.
	Family Family
}

// PoolKind represents the kind of a space in which blocks exclude each other.
type PoolKind string

// The kinds of spaces: the platform's pools, those of a namespace, those of Cluster API's in-cluster
// provider, and routing domains. Routing domains are spaces too: they hand out the CIDRs of root
// pools.
const (
	PoolKindIPPool                PoolKind = "IPPool"
	PoolKindLocalIPPool           PoolKind = "LocalIPPool"
	PoolKindGlobalInClusterIPPool PoolKind = "GlobalInClusterIPPool"
	PoolKindInClusterIPPool       PoolKind = "InClusterIPPool"
	PoolKindRoutingDomain         PoolKind = "RoutingDomain"
)

// IsPool reports whether this is a kind of pool.
func (k PoolKind) IsPool() bool {
	return k == PoolKindIPPool || k == PoolKindLocalIPPool || k.IsInCluster()
}

// IsInCluster reports whether this is a kind of the in-cluster provider.
func (k PoolKind) IsInCluster() bool {
	return k == PoolKindGlobalInClusterIPPool || k == PoolKindInClusterIPPool
}

// IsNamespaced reports whether pools of this kind belong to a namespace.
func (k PoolKind) IsNamespaced() bool {
	return k == PoolKindLocalIPPool || k == PoolKindInClusterIPPool
}

// PoolOfKind returns the key of a pool. The namespace counts for a kind that has one.
func PoolOfKind(kind PoolKind, namespace, name string) PoolKey {
	if !kind.IsNamespaced() {
		namespace = ""
	}
	return PoolKey{Kind: kind, Namespace: namespace, Name: name}
}

// PoolNamed returns the key of a cluster-scoped pool.
func PoolNamed(name string) PoolKey { return PoolKey{Kind: PoolKindIPPool, Name: name} }

// LocalPoolNamed returns the key of a namespace's own pool.
func LocalPoolNamed(namespace, name string) PoolKey {
	return PoolKey{Kind: PoolKindLocalIPPool, Namespace: namespace, Name: name}
}

// DomainNamed returns the key of one family of a routing domain of cluster-scoped pools.
func DomainNamed(name string, family Family) PoolKey {
	return PoolKey{Kind: PoolKindRoutingDomain, Name: name, Family: family}
}

// LocalDomainNamed returns the key of one family of a namespace's own routing domain; that of
// DomainNamed if the namespace is empty. No other space has this key, whatever the names.
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

// The time for which a block is kept if neither class nor pool states one: a retained block,
// and one that waits for the next claim of its sticky key.
const (
	retainedFor = 720 * time.Hour
	stickyFor   = time.Hour
)

// Keeping holds the times for which a block is kept after its holder is gone.
type Keeping struct {
	// Retention of a retained block; zero: the default.
	Retention time.Duration
	// ReuseDelay of a released block.
	ReuseDelay time.Duration
}

// KeepingOf returns the times that class and pool state; either may be nil. The class counts
// first, then the pool.
func KeepingOf(class *Class, pool *Pool) Keeping {
	var k Keeping
	if pool != nil {
		k.ReuseDelay, k.Retention = pool.ReuseDelay, pool.Retention
	}
	if class != nil {
		k.Retention = cmp.Or(class.Retention, k.Retention)
		if class.ReuseDelay >= 0 {
			k.ReuseDelay = class.ReuseDelay
		}
	}
	return k
}

// Transition holds the next step for a record without a holder.
type Transition struct {
	// State is the state to write, or empty.
	State State
	// ReleaseAfter goes with State; zero: never by itself.
	ReleaseAfter time.Time
	// Release reports whether the block is free.
	Release bool
	// Again is the time to look again; zero: when the record changes.
	Again time.Time
}

// NextState decides the next step for a record whose holder is gone.
//
//	Bound ── Delete ──┬─ no delay ────────────────┬─▶ released
//	  │               └─ delay ─▶ Cooling ─ due ──┤
//	  └──── Retain ─▶ Retained ─ due ─ as Delete ─┘
//
// A block with a sticky key is retained for a time even with Delete. If a claim took over a
// retained block and does not exist, the block is retained again until its old due time.
//
// If a person deletes a retained record, it is due at once, and cools down if there is a delay:
// its finalizer keeps it until then. The deletion of a record that cools down changes nothing.
// In a namespace that is being deleted nothing is retained: no claim can come back there.
func NextState(r Record, k Keeping, now time.Time) Transition {
	switch {
	case r.Purpose == PurposePool:
		return Transition{Release: true}
	case r.WasTakenOver() && !r.Terminating:
		return Transition{State: StateRetained, ReleaseAfter: r.ReleaseAfter}
	case r.State == StateBound && r.isKept():
		return Transition{State: StateRetained, ReleaseAfter: r.keptUntil(k, now)}
	case r.State == StateRetained && !r.Terminating && r.ReleaseAfter.IsZero():
		return Transition{State: StateRetained, ReleaseAfter: r.keptUntil(k, now)}
	case r.isNotDue(now):
		return Transition{Again: r.ReleaseAfter}
	case r.State != StateCooling && k.ReuseDelay > 0:
		return Transition{State: StateCooling, ReleaseAfter: now.Add(k.ReuseDelay)}
	default:
		return Transition{Release: true}
	}
}

// isNotDue reports whether the time of a retained or cooling record is not over. If a person
// deletes a retained record, its time ends.
func (r Record) isNotDue(now time.Time) bool {
	ended := r.State == StateBound || r.State == StateRetained && r.Terminating
	return !ended && now.Before(r.ReleaseAfter)
}

// isKept reports whether the block is kept for another claim once its holder is gone.
func (r Record) isKept() bool {
	return !r.Terminating && (r.Reclaim == ReclaimRetain || r.Sticky != "")
}

// keptUntil returns the time when a kept block is free.
func (r Record) keptUntil(k Keeping, now time.Time) time.Time {
	if r.Reclaim != ReclaimRetain { // for the next claim of its sticky key
		return now.Add(cmp.Or(k.Retention, stickyFor))
	}
	return now.Add(cmp.Or(k.Retention, retainedFor))
}
