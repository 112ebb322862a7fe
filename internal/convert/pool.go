package convert

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// PoolKey returns the key of the pool that a reference names, from within a namespace or, if that
// is empty, from a cluster-scoped pool.
func PoolKey(namespace string, ref v1alpha1.PoolReference) ipam.PoolKey {
	return ipam.PoolOfKind(ipam.PoolKind(cmp.Or(ref.Kind, v1alpha1.PoolKindIPPool)), namespace, ref.Name)
}

// NewPool returns an empty pool of a kind; an IPPool if the kind is empty.
func NewPool(kind ipam.PoolKind) v1alpha1.Pool {
	switch kind {
	case ipam.PoolKindInClusterIPPool:
		return &incluster.InClusterIPPool{}
	case ipam.PoolKindGlobalInClusterIPPool:
		return &incluster.GlobalInClusterIPPool{}
	case ipam.PoolKindLocalIPPool:
		return &v1alpha1.LocalIPPool{}
	}
	return &v1alpha1.IPPool{}
}

// PoolTypes returns an empty pool of each kind, with those of the in-cluster provider or without.
func PoolTypes(inCluster bool) []v1alpha1.Pool {
	types := []v1alpha1.Pool{&v1alpha1.IPPool{}, &v1alpha1.LocalIPPool{}}
	if inCluster {
		types = append(types, &incluster.InClusterIPPool{}, &incluster.GlobalInClusterIPPool{})
	}
	return types
}

// PoolFinalizer returns the finalizer on pools of a kind.
func PoolFinalizer(kind v1alpha1.PoolKind) string {
	if ipam.PoolKind(kind).IsInCluster() {
		return incluster.FinalizerPool
	}
	return v1alpha1.FinalizerPool
}

// KeyOf returns the key of a pool.
func KeyOf(obj v1alpha1.Pool) ipam.PoolKey {
	return PoolKey(obj.GetNamespace(), v1alpha1.PoolReference{Kind: obj.PoolKind(), Name: obj.GetName()})
}

// PoolReference returns the reference that names a pool.
func PoolReference(key ipam.PoolKey) *v1alpha1.PoolReference {
	return &v1alpha1.PoolReference{Kind: v1alpha1.PoolKind(key.Kind), Name: key.Name}
}

// Pool reads a pool of any kind. If it returns errors, the pool must not be used.
func Pool(obj v1alpha1.Pool) (ipam.Pool, field.ErrorList) { return PoolAfter(ipam.Pool{}, obj) }

// PoolAfter reads a pool of which an earlier version may have been read without errors. If the spec
// is still the same, PoolAfter does not read it again: it may have thousands of ranges, and the
// status changes every second.
func PoolAfter(previous ipam.Pool, obj v1alpha1.Pool) (ipam.Pool, field.ErrorList) {
	key, spec := KeyOf(obj), ipam.Revision{UID: string(obj.GetUID()), Generation: obj.GetGeneration()}
	pool, errs := previous, field.ErrorList(nil)
	if spec != previous.Spec || spec.UID == "" {
		pool, errs = readSpec(obj)
	}
	if key.Kind.IsInCluster() { // an annotation states it, which is not in the generation
		pool.Home = ipam.LocalDomainNamed(key.Namespace, cmp.Or(obj.PoolSpec().RoutingDomain, v1alpha1.DefaultRoutingDomain), pool.Family)
	}
	pool.Spec, pool.OpenSince, pool.ParentGrant = spec, time.Time{}, nil
	visibility, project := obj.SharedWith()
	errs = append(errs, consumer(visibility, project)...)
	pool.Key = key
	pool.Labels = obj.GetLabels()
	pool.Visibility = ipam.Visibility(cmp.Or(visibility, v1alpha1.VisibilityShared))
	pool.Project = project
	pool.Terminating = !obj.GetDeletionTimestamp().IsZero()
	pool.Paused = paused(obj.GetAnnotations())
	return pool, append(errs, poolParent(obj, &pool)...)
}

func readSpec(obj v1alpha1.Pool) (ipam.Pool, field.ErrorList) {
	if pool, ok := obj.(incluster.Pool); ok {
		return inClusterSpec(pool.InClusterSpec())
	}
	return poolSpec(obj.GetNamespace(), obj.PoolSpec())
}

// poolParent reads whether the use of the parent is granted, and returns errors about the parent.
func poolParent(obj v1alpha1.Pool, pool *ipam.Pool) field.ErrorList {
	parent := obj.PoolSpec().ParentRef
	if parent == nil {
		return nil
	}
	path := field.NewPath("spec", "parentRef")
	pool.ParentGrant = grant(obj.GetAnnotations(), parent.Name)
	switch {
	case pool.Key.Kind == ipam.PoolKindIPPool && parent.Kind == v1alpha1.PoolKindLocalIPPool:
		return field.ErrorList{field.Invalid(path.Child("kind"), parent.Kind, "a cluster-scoped pool cannot be part of a LocalIPPool: name an IPPool")}
	case PoolKey(pool.Key.Namespace, *parent) == pool.Key:
		return field.ErrorList{field.Invalid(path.Child("name"), parent.Name, "is the pool itself: name the pool of which this one is a part")}
	}
	return nil
}

func paused(annotations map[string]string) bool {
	_, isPausedHere := annotations[v1alpha1.AnnotationPaused]
	_, isPausedByClusterAPI := annotations[v1alpha1.AnnotationClusterAPIPaused]
	return isPausedHere || isPausedByClusterAPI
}

func poolSpec(namespace string, spec *v1alpha1.PoolSpec) (ipam.Pool, field.ErrorList) {
	path := field.NewPath("spec")
	pool := ipam.Pool{
		Classes:      spec.ClassNames,
		OnExhaustion: cmp.Or(ipam.OnExhaustion(spec.OnExhaustion), ipam.OnExhaustionWait),
		ReuseDelay:   duration(spec.ReuseDelay, 0),
		Retention:    duration(spec.RetentionPeriod, 0),
		AllowRetain:  spec.AllowRetain,
	}
	var errs field.ErrorList
	pool.CIDR, pool.Family, errs = poolCIDR(path, spec)
	errs = append(errs, notNegative(path.Child("reuseDelay"), spec.ReuseDelay)...)
	errs = append(errs, retention(path.Child("retentionPeriod"), spec.RetentionPeriod)...)
	errs = append(errs, limit(path.Child("limits"), spec.Limits, &pool.Limit)...)
	home, homeErrs := poolHome(namespace, spec, pool.Family)
	pool.Home, pool.Length = home, pool.CIDR.Bits()
	errs = append(errs, homeErrs...)
	if spec.PrefixLength != nil {
		bits, err := length(path.Child("prefixLength"), spec.PrefixLength, pool.Family)
		pool.Length = bits
		errs = appendError(errs, err)
	}
	if len(errs) > 0 {
		return pool, errs
	}
	if errs := poolOccupies(path, spec); len(errs) > 0 {
		return pool, errs
	}
	withheld, errs := poolNetwork(path.Child("network"), spec.Network, &pool)
	errs = append(errs, poolWithheld(path, spec, withheld, &pool)...)
	errs = append(errs, poolLengths(path.Child("allocation"), spec.Allocation, &pool)...)
	return pool, errs
}

func poolCIDR(path *field.Path, spec *v1alpha1.PoolSpec) (netip.Prefix, ipam.Family, field.ErrorList) {
	stated := ipam.Family(spec.IPFamily)
	if spec.CIDR == "" {
		return netip.Prefix{}, stated, nil
	}
	block, err := Block(path.Child("cidr"), spec.CIDR)
	if err != nil {
		return block, stated, field.ErrorList{err}
	}
	family, err := familyOf(path.Child("ipFamily"), stated, block)
	if err != nil {
		return block, family, field.ErrorList{err}
	}
	if bits := spec.PrefixLength; bits != nil && int(*bits) != block.Bits() {
		return block, family, field.ErrorList{field.Invalid(path.Child("prefixLength"), *bits,
			fmt.Sprintf("the CIDR is a /%d: remove one of them", block.Bits()))}
	}
	return block, family, nil
}

// poolHome returns the pool or the routing domain in which the CIDR of a pool is recorded. It
// belongs to the namespace unless that is empty.
func poolHome(namespace string, spec *v1alpha1.PoolSpec, family ipam.Family) (ipam.PoolKey, field.ErrorList) {
	path := field.NewPath("spec")
	if spec.ParentRef != nil {
		if spec.RoutingDomain != "" {
			return ipam.PoolKey{}, field.ErrorList{field.Forbidden(path.Child("routingDomain"), "is for root pools only, a child lives in its parent: remove it")}
		}
		if spec.CIDR == "" && spec.PrefixLength == nil {
			return ipam.PoolKey{}, field.ErrorList{field.Required(path.Child("prefixLength"), "set it to the length of the pool's block of the parent")}
		}
		return PoolKey(namespace, *spec.ParentRef), objectName(path.Child("parentRef", "name"), spec.ParentRef.Name)
	}
	if spec.CIDR == "" {
		return ipam.PoolKey{}, field.ErrorList{field.Required(path.Child("cidr"), "a root pool needs a cidr, a child pool a parentRef: set one of them")}
	}
	if spec.PrefixLength != nil {
		return ipam.PoolKey{}, field.ErrorList{field.Forbidden(path.Child("prefixLength"), "is for child pools only, a root pool has the length of its cidr: remove it, or set parentRef")}
	}
	return ipam.LocalDomainNamed(namespace, cmp.Or(spec.RoutingDomain, v1alpha1.DefaultRoutingDomain), family), nil
}

// poolOccupies returns the errors of a pool that occupies its ranges, without a field that it needs.
func poolOccupies(path *field.Path, spec *v1alpha1.PoolSpec) (errs field.ErrorList) {
	switch {
	case spec.Occupies == "" || spec.Occupies == v1alpha1.OccupiesCIDR:
		return nil
	case spec.Occupies != v1alpha1.OccupiesRanges:
		return field.ErrorList{field.NotSupported(path.Child("occupies"), spec.Occupies, []v1alpha1.PoolOccupies{v1alpha1.OccupiesCIDR, v1alpha1.OccupiesRanges})}
	case spec.CIDR == "":
		errs = append(errs, field.Required(path.Child("cidr"), "a pool that occupies its ranges needs the subnet in which they lie: set cidr"))
	}
	if len(spec.Ranges) == 0 {
		errs = append(errs, field.Required(path.Child("ranges"), "a pool that occupies its ranges needs at least one: set ranges, or leave out occupies"))
	}
	if spec.PrefixLength != nil {
		errs = append(errs, field.Forbidden(path.Child("prefixLength"), "is not for a pool that occupies its ranges: remove it, and set cidr"))
	}
	return errs
}

// BlocksOf returns what a pool holds of its home by its spec; nil if that cannot be read, or while it
// has no CIDR.
func BlocksOf(obj v1alpha1.Pool) []netip.Prefix {
	pool, errs := readSpec(obj)
	if len(errs) > 0 {
		return nil
	}
	return pool.Blocks()
}

// poolWithheld computes the addresses that are never handed out; network holds the ranges that the
// subnet withholds. A child without a CIDR has no addresses yet, and its ranges are read again when
// it has a CIDR.
func poolWithheld(path *field.Path, spec *v1alpha1.PoolSpec, network []space.Range, pool *ipam.Pool) field.ErrorList {
	ranges, errs := spans(path.Child("ranges"), spec.Ranges, pool.CIDR)
	reserved, more := spans(path.Child("reserved"), spec.Reserved, pool.CIDR)
	if errs = append(errs, more...); len(errs) > 0 || !pool.CIDR.IsValid() {
		return errs
	}
	if spec.Occupies == v1alpha1.OccupiesRanges {
		pool.Occupied = space.NewRanges(pool.CIDR, ranges)
		if blocks := len(pool.Blocks()); blocks > v1alpha1.MaxRecordBlocks {
			return field.ErrorList{field.Invalid(path.Child("ranges"), len(spec.Ranges), fmt.Sprintf("the entries make %d CIDR blocks, and a pool that occupies its ranges can have %d: use larger CIDRs, or make several pools",
				blocks, v1alpha1.MaxRecordBlocks))}
		}
	}
	withheld := slices.Concat(reserved, network)
	if len(spec.Ranges) > 0 {
		withheld = append(withheld, Outside(pool.CIDR, ranges)...)
	}
	pool.Withheld = space.NewRanges(pool.CIDR, withheld)
	return nil
}

func poolLengths(path *field.Path, spec *v1alpha1.PoolAllocation, pool *ipam.Pool) field.ErrorList {
	pool.Strategy = ipam.StrategyFirstFit
	pool.Lengths = ipam.Lengths{Min: max(pool.CIDR.Bits(), 0), Max: pool.Family.Bits()}
	if spec == nil {
		return nil
	}
	pool.Strategy = cmp.Or(ipam.Strategy(spec.Strategy), pool.Strategy)
	var errs field.ErrorList
	for _, bound := range []struct {
		name   string
		bits   *int32
		target *int
	}{{"minPrefixLength", spec.MinPrefixLength, &pool.Lengths.Min}, {"maxPrefixLength", spec.MaxPrefixLength, &pool.Lengths.Max}} {
		if bound.bits == nil {
			continue
		}
		bits, err := length(path.Child(bound.name), bound.bits, pool.Family)
		if err == nil && bits < pool.CIDR.Bits() {
			err = field.Invalid(path.Child(bound.name), bits, fmt.Sprintf("a block cannot be larger than the pool, which is a /%d: write %[1]d or more", pool.CIDR.Bits()))
		}
		*bound.target = bits
		errs = appendError(errs, err)
	}
	if len(errs) == 0 && pool.Lengths.Min > pool.Lengths.Max {
		errs = append(errs, field.Invalid(path.Child("minPrefixLength"), pool.Lengths.Min, fmt.Sprintf("must not be greater than maxPrefixLength %d: swap them", pool.Lengths.Max)))
	}
	return errs
}

// Capacity returns the counts of addresses as text.
func Capacity(total, allocated, available, withheld, outOfRange fmt.Stringer) *v1alpha1.Capacity {
	return &v1alpha1.Capacity{
		Total: total.String(), Allocated: allocated.String(), Available: available.String(),
		Withheld: withheld.String(), OutOfRange: outOfRange.String(),
	}
}

// poolNetwork reads the subnet of a pool of host addresses, and returns the ranges of the pool that
// it withholds: its gateway and edges.
func poolNetwork(path *field.Path, spec *v1alpha1.PoolNetwork, pool *ipam.Pool) ([]space.Range, field.ErrorList) {
	if spec == nil {
		return nil, nil
	}
	bits, err := length(path.Child("prefixLength"), &spec.PrefixLength, pool.Family)
	if err != nil {
		return nil, field.ErrorList{err}
	}
	isAlone := bits == pool.Family.Bits() // each address is a separate subnet
	if pool.CIDR.IsValid() && bits > pool.CIDR.Bits() && !isAlone {
		return nil, field.ErrorList{field.Invalid(path.Child("prefixLength"), bits,
			fmt.Sprintf("the pool is a /%d, and lies within one subnet: write %d or less", pool.CIDR.Bits(), pool.CIDR.Bits()))}
	}
	pool.Network = &ipam.Network{Length: bits}
	if errs := hostSettings(path, &spec.HostSettings, pool); len(errs) > 0 || !pool.CIDR.IsValid() {
		return nil, errs
	}
	subnet := netip.PrefixFrom(pool.CIDR.Addr(), bits).Masked()
	var withheld []space.Range
	if spec.Gateway != "" {
		gateway, err := gatewayOf(path.Child("gateway"), spec.Gateway, subnet)
		if err != nil {
			return nil, field.ErrorList{err}
		}
		pool.Network.Gateway = gateway
		withheld = append(withheld, space.Range{From: gateway, To: gateway})
	}
	if !spec.AllocateEdgeAddresses {
		for _, edge := range Edges(subnet) {
			withheld = append(withheld, space.Range{From: edge, To: edge})
		}
	}
	return withheld, nil
}

// leastMTU6 is the smallest MTU of a link that carries IPv6 (RFC 8200 section 5).
const leastMTU6 = 1280

// hostSettings reads the settings that a holder of an address of the pool needs in addition to the
// address.
func hostSettings(path *field.Path, spec *v1alpha1.HostSettings, pool *ipam.Pool) field.ErrorList {
	var errs field.ErrorList
	network := pool.Network
	for i, text := range spec.DNSServers {
		server, err := Addr(path.Child("dnsServers").Index(i), text)
		network.DNSServers = append(network.DNSServers, server)
		errs = appendError(errs, err)
	}
	network.SearchDomains, network.MTU, network.VLAN = spec.SearchDomains, int(spec.MTU), int(spec.VLAN)
	if spec.MTU != 0 && spec.MTU < leastMTU6 && pool.Family == ipam.IPv6 {
		errs = append(errs, field.Invalid(path.Child("mtu"), spec.MTU, fmt.Sprintf("must be %d or more for IPv6 (RFC 8200)", leastMTU6)))
	}
	return errs
}

// gatewayOf reads the gateway of a subnet: an address of it, or in IPv6 a link-local address, as
// routers announce themselves by one (RFC 4861 section 4.2). The gateway of a subnet that is a
// single address is on the link but outside the subnet: any address of the family.
func gatewayOf(path *field.Path, text string, subnet netip.Prefix) (netip.Addr, *field.Error) {
	gateway, err := Addr(path, text)
	switch {
	case err != nil:
		return netip.Addr{}, err
	case subnet.Contains(gateway), subnet.Addr().Is6() && gateway.Is6() && gateway.IsLinkLocalUnicast():
		return gateway, nil
	case subnet.IsSingleIP() && gateway.Is4() == subnet.Addr().Is4():
		return gateway, nil
	case subnet.IsSingleIP():
		return netip.Addr{}, field.Invalid(path, text, fmt.Sprintf("is not of the family of the subnet %s: correct it", subnet))
	case subnet.Addr().Is4():
		return netip.Addr{}, field.Invalid(path, text, fmt.Sprintf("is not an address of the subnet %s: correct it, or correct prefixLength", subnet))
	default:
		return netip.Addr{}, field.Invalid(path, text, fmt.Sprintf("is neither an address of the subnet %s nor link-local (fe80::/10): correct it, or correct prefixLength", subnet))
	}
}

// EdgeGateway returns an error if the gateway of a pool with the CIDR is the network or broadcast
// address of its IPv4 subnet. Such a pool can still be read, because some were stored before this
// was refused.
func EdgeGateway(spec *v1alpha1.PoolNetwork, cidr netip.Prefix) *field.Error {
	if spec == nil || !cidr.IsValid() || !cidr.Addr().Is4() {
		return nil
	}
	subnet := netip.PrefixFrom(cidr.Addr(), int(spec.PrefixLength)).Masked()
	if gateway, err := netip.ParseAddr(spec.Gateway); err == nil && slices.Contains(Edges(subnet), gateway) {
		return field.Invalid(field.NewPath("spec", "network", "gateway"), spec.Gateway,
			fmt.Sprintf("is the network or broadcast address of the subnet %s: choose another address of it", subnet))
	}
	return nil
}

// Edges returns the addresses of a subnet that are not for hosts: network and broadcast address in
// IPv4, the subnet-router anycast address in IPv6 (RFC 4291 section 2.6.1). Point-to-point subnets
// have none (RFC 3021, RFC 6164).
func Edges(subnet netip.Prefix) []netip.Addr {
	switch size := subnet.Addr().BitLen() - subnet.Bits(); {
	case size <= 1:
		return nil
	case subnet.Addr().Is4():
		return []netip.Addr{subnet.Addr(), lastOf(subnet)}
	default:
		return []netip.Addr{subnet.Addr()}
	}
}
