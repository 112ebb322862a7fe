// Package register holds the register of addresses as a person can read it: routing
// domains, pools, and the blocks that are held of them, built from the objects that the
// caller can list.
//
// Read lists the objects, and notes the kinds of objects that the caller cannot list. Build
// builds the register from the listed objects, and is a pure function. A Register does not
// change after it is built and can be shared.
package register

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// Objects holds the listed objects.
type Objects struct {
	Pools      []v1alpha1.IPPool
	LocalPools []v1alpha1.LocalIPPool
	// InClusterPools holds the pools of the in-cluster provider's kinds that Cadastre serves.
	InClusterPools []v1alpha1.Pool
	Allocations    []*v1alpha1.IPAllocation
	// Records holds allocations that have been read already. Registers share them, except the
	// records of pools.
	Records []*Record
	// Mentioned holds pools that other objects name, with their families. Build adds those that
	// are not among the pools, as it adds pools of which blocks are recorded.
	Mentioned map[ipam.PoolKey]ipam.Family
	// RecordsRead reports that allocations were listed: those in the scope, or all.
	RecordsRead bool
	// Waiting holds the IPClaims that hold no block.
	Waiting []v1alpha1.IPClaim
	// Classes holds all classes that the caller can read.
	Classes []v1alpha1.IPClass
	// Unread holds the kinds of objects that the caller cannot list.
	Unread []Unread
}

// Register holds the known state of the address space.
type Register struct {
	// Domains holds the domains with at least one pool or block, in the order of their keys.
	Domains []*Domain
	// Pools holds all pools, root and child, in address order within their domain.
	Pools []*Pool
	// Waiting holds the IPClaims that hold no block, oldest first.
	Waiting []v1alpha1.IPClaim
	// Unread holds the kinds of objects that the caller cannot list: some of these objects may
	// be missing here.
	Unread []Unread
	// RecordsRead reports that the records in the scope were read; if they were not, pools and
	// domains have none here.
	RecordsRead bool
	// Invalid holds an error for each object that could not be understood, with the reason.
	Invalid []error

	pools   map[ipam.PoolKey]*Pool
	classes []inventory.ClassEntry
}

// Domain represents one family of a routing domain: the space in which root pools exclude each
// other.
type Domain struct {
	Key ipam.PoolKey
	// Roots holds its root pools, in address order.
	Roots []*Pool
	// Records holds the records of its root pools, in address order, each once for each of its blocks.
	Records []*Record
}

// Pool represents a pool with the blocks that are held of it.
type Pool struct {
	// Pool holds the content of the spec. The CIDR of a child is the block that was carved for
	// it; zero while it has none.
	ipam.Pool
	// Object is nil if the pool does not exist, or the caller cannot read it, and blocks of it
	// are recorded.
	Object v1alpha1.Pool
	// Domain is the domain of the root pool above it; nil while that is not known.
	Domain *Domain
	// Parent is nil for a root pool.
	Parent *Pool
	// Children holds its child pools, in address order.
	Children []*Pool
	// Records holds the records of its blocks, in address order, each once for each of its blocks.
	Records []*Record
	// Waiting holds the IPClaims that hold no block and could be served from the pool, oldest
	// first: the claims that name it, and the claims that can use it by their class or selector.
	Waiting []*v1alpha1.IPClaim

	// uncovered holds the addresses that the pool occupies by its spec, and that are not recorded
	// for it yet.
	uncovered []space.Range
}

// Record represents a block that is held.
type Record struct {
	ipam.Record
	// Since is the time at which the block was recorded.
	Since time.Time
	// Child is the pool whose space the block is; nil for the block of a claim.
	Child *Pool

	// whole is the record that holds this block and others; nil if it holds no others.
	whole *Record
}

// Whole returns the record with all of its blocks.
func (r *Record) Whole() *Record { return cmp.Or(r.whole, r) }

// IsFirst reports whether this is the first block of the record: true for one block of each record.
func (r *Record) IsFirst() bool { return r.Block == r.Whole().Block }

// Parts returns the record once for each of its blocks, with that block alone.
func (r *Record) Parts() []*Record {
	if len(r.AdditionalBlocks) == 0 {
		return []*Record{r}
	}
	var parts []*Record
	for _, block := range r.Blocks() {
		part := new(*r)
		part.Block, part.AdditionalBlocks, part.whole = block, nil, r
		parts = append(parts, part)
	}
	return parts
}

// IsKnown reports whether the pool's object could be read.
func (p *Pool) IsKnown() bool { return p.Object != nil }

// Pool returns the pool with the key, or nil.
func (r *Register) Pool(key ipam.PoolKey) *Pool { return r.pools[key] }

// Build builds the register from the listed objects. It keeps the objects.
func Build(objects *Objects) *Register {
	r := &Register{
		Waiting:     objects.Waiting,
		Unread:      objects.Unread,
		RecordsRead: objects.RecordsRead,
		pools:       make(map[ipam.PoolKey]*Pool, len(objects.Pools)+len(objects.LocalPools)+len(objects.InClusterPools)),
	}
	r.addPools(objects)
	domains := map[ipam.PoolKey]*Domain{}
	for _, allocation := range objects.Allocations {
		r.addAllocation(domains, allocation)
	}
	for _, record := range objects.Records {
		if record.Purpose == ipam.PurposePool { // its Child must be the pool of this register
			record = new(*record)
		}
		r.addRecord(domains, record)
	}
	for key, family := range objects.Mentioned {
		if r.pools[key] == nil {
			r.pools[key] = &Pool{Pool: ipam.Pool{Key: key, Family: family}}
		}
	}
	for _, pool := range r.pools {
		r.place(domains, pool)
	}
	r.withholdUncovered(domains)
	r.cutCycles()
	r.sort(domains)
	r.assignWaiting(objects)
	return r
}

func (r *Register) addPools(objects *Objects) {
	for i := range objects.Pools {
		r.addPool(&objects.Pools[i])
	}
	for i := range objects.LocalPools {
		r.addPool(&objects.LocalPools[i])
	}
	for _, pool := range objects.InClusterPools {
		r.addPool(pool)
	}
}

func (r *Register) addPool(obj v1alpha1.Pool) {
	pool, errs := convert.Pool(obj)
	if len(errs) > 0 {
		r.Invalid = append(r.Invalid, invalidError(convert.HolderOfPool(convert.KeyOf(obj)), errs.ToAggregate()))
		return
	}
	pool.Withheld = withFormerGateways(pool, obj.PoolStatus().FormerGateways)
	r.pools[pool.Key] = &Pool{Pool: pool, Object: obj}
}

func (r *Register) addAllocation(domains map[ipam.PoolKey]*Domain, obj *v1alpha1.IPAllocation) {
	record, err := NewRecord(obj)
	if err != nil {
		r.Invalid = append(r.Invalid, err)
		return
	}
	r.addRecord(domains, record)
}

func invalidError(object ipam.Holder, err error) error {
	return fmt.Errorf("%s is not valid and is left out: %w", object, err)
}

// NewRecord reads an IPAllocation. The error names the object.
func NewRecord(obj *v1alpha1.IPAllocation) (*Record, error) {
	read, err := convert.Record(obj)
	if err != nil {
		return nil, invalidError(ipam.Holder{Kind: "IPAllocation", Namespace: obj.Namespace, Name: obj.Name}, err)
	}
	return &Record{Record: read, Since: obj.CreationTimestamp.Time}, nil
}

func (r *Register) addRecord(domains map[ipam.PoolKey]*Domain, record *Record) {
	if record.Purpose == ipam.PurposePool {
		record.Child = r.child(record)
	}
	if record.Pool.Kind == ipam.PoolKindRoutingDomain {
		domain := domainOf(domains, record.Pool)
		domain.Records = append(domain.Records, record.Parts()...)
		return
	}
	pool := r.pools[record.Pool]
	if pool == nil {
		pool = &Pool{Pool: ipam.Pool{Key: record.Pool, Family: ipam.FamilyOf(record.Block)}}
		r.pools[record.Pool] = pool
	}
	pool.Records = append(pool.Records, record.Parts()...)
}

// child returns the pool whose space the record is, or nil. If the pool has no CIDR yet, the
// block becomes its CIDR.
func (r *Register) child(record *Record) *Pool {
	child := r.pools[convert.PoolOf(record.Holder)]
	if child != nil && !child.CIDR.IsValid() {
		child.CIDR = record.Block
	}
	return child
}

// Name returns the name of the routing domain, with its namespace if it is one of a namespace's
// own; it is empty for a nil domain, which is not known.
func (d *Domain) Name() string {
	if d == nil {
		return ""
	}
	return d.Key.FullName()
}

func domainOf(domains map[ipam.PoolKey]*Domain, key ipam.PoolKey) *Domain {
	domain := domains[key]
	if domain == nil {
		domain = &Domain{Key: key}
		domains[key] = domain
	}
	return domain
}

// place links a pool with its parent, or with its routing domain.
func (r *Register) place(domains map[ipam.PoolKey]*Domain, pool *Pool) {
	switch {
	case !pool.IsKnown():
	case pool.IsChild():
		if parent := r.pools[pool.Home]; parent != nil {
			pool.Parent = parent
			parent.Children = append(parent.Children, pool)
		}
	default:
		pool.Domain = domainOf(domains, pool.Home)
		pool.Domain.Roots = append(pool.Domain.Roots, pool)
	}
}

// cutCycles removes pools that are their own ancestors from their parents, so that every walk up
// or down ends. None of them is ever carved.
func (r *Register) cutCycles() {
	for _, pool := range slices.SortedFunc(maps.Values(r.pools), byAddress) {
		seen := map[*Pool]bool{}
		for ancestor := pool.Parent; ancestor != nil && !seen[ancestor]; ancestor = ancestor.Parent {
			if ancestor == pool {
				pool.Parent.Children = slices.DeleteFunc(pool.Parent.Children, func(p *Pool) bool { return p == pool })
				pool.Parent = nil
				break
			}
			seen[ancestor] = true
		}
	}
}

func (r *Register) sort(domains map[ipam.PoolKey]*Domain) {
	for _, domain := range domains {
		slices.SortFunc(domain.Roots, byAddress)
		slices.SortFunc(domain.Records, ByBlock)
		r.Domains = append(r.Domains, domain)
	}
	slices.SortFunc(r.Domains, func(a, b *Domain) int { return compareKeys(a.Key, b.Key) })
	for _, pool := range r.pools {
		slices.SortFunc(pool.Children, byAddress)
		slices.SortFunc(pool.Records, ByBlock)
	}
	for _, domain := range r.Domains {
		for _, root := range domain.Roots {
			r.collect(domain, root)
		}
	}
	for _, pool := range slices.SortedFunc(maps.Values(r.pools), byAddress) {
		if pool.Parent == nil && pool.Domain == nil { // no root is known
			r.collect(nil, pool)
		}
	}
}

// collect appends a pool and the pools below it.
func (r *Register) collect(domain *Domain, pool *Pool) {
	pool.Domain = domain
	r.Pools = append(r.Pools, pool)
	for _, child := range pool.Children {
		r.collect(domain, child)
	}
}

func byAddress(a, b *Pool) int {
	return cmp.Or(a.CIDR.Compare(b.CIDR), compareKeys(a.Key, b.Key))
}

// ByBlock orders records by address, and a block before the blocks that it contains.
func ByBlock(a, b *Record) int {
	if order := a.Block.Compare(b.Block); order != 0 {
		return order
	}
	return cmp.Compare(a.Name.String(), b.Name.String())
}

// compareKeys orders cluster-scoped spaces before those of namespaces, then by name and kind.
func compareKeys(a, b ipam.PoolKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Family, b.Family), cmp.Compare(a.Kind, b.Kind))
}
