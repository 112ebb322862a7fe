package ipam

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
