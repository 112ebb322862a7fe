package migrate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

const (
	// labelImport on an object that an import makes holds the name of its command.
	labelImport = "ipam.cadastre.dev/import"
	// pausedValue of the annotation ipam.cadastre.dev/paused means that an import has set it.
	pausedValue = "import"
	// spansMost bounds the number of ranges, and of reserved ranges, of a pool.
	spansMost = 1024
)

// target returns the pool that a source becomes, without its spec: see fill.
func (pp *poolPlan) target(o Options) *v1alpha1.LocalIPPool {
	pool := &v1alpha1.LocalIPPool{}
	pool.Namespace, pool.Name = pp.ref.Namespace, pp.ref.Name+o.Suffix
	labels := map[string]string{}
	maps.Copy(labels, pp.obj.GetLabels())
	labels[labelImport] = importMetal3
	if pp.cluster != "" {
		labels[v1alpha1.LabelCluster] = pp.cluster
	}
	pool.Labels = labels
	paused := pausedValue
	if _, isPaused := pp.obj.GetAnnotations()[v1alpha1.AnnotationClusterAPIPaused]; isPaused {
		paused = "true"
	}
	pool.Annotations = map[string]string{v1alpha1.AnnotationPaused: paused, annotationOrigin: origin{Pool: pp.ref.Name}.text()}
	for _, owner := range pp.obj.GetOwnerReferences() {
		pool.OwnerReferences = append(pool.OwnerReferences, metav1.OwnerReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID})
	}
	return pool
}

// fill writes the spec of the pool, once what it occupies is known, and lists why the pool could
// not be made. The pool reserves the addresses that the source excludes, those that stay with Metal3,
// and those in use that it occupies only because of their holders.
func (pp *poolPlan) fill(domain string, occupies v1alpha1.PoolOccupies) {
	whole := setOfPrefix(pp.network)
	spec := &pp.pool.Spec.PoolSpec
	spec.CIDR, spec.RoutingDomain, spec.Occupies = pp.network.String(), domain, occupies
	spec.Network = &v1alpha1.PoolNetwork{
		PrefixLength: int32(pp.network.Bits()), //nolint:gosec // 0 to 128
		Gateway:      canonical(pp.gateway),
		HostSettings: v1alpha1.HostSettings{DNSServers: pp.dnsServers},
	}
	ranges, reserved := common(pp.addresses, whole), union(pp.excluded, setOfHoldings(pp.own))
	if occupies == v1alpha1.OccupiesRanges {
		ranges = pp.needed()
		reserved = union(reserved, minus(ranges, pp.addresses))
	}
	if occupies == v1alpha1.OccupiesRanges || !ranges.Equal(whole) {
		spec.Ranges = textsOf(ranges)
	}
	spec.Reserved = textsOf(common(reserved, whole))
	for field, texts := range map[string][]string{"ranges": spec.Ranges, "reserved": spec.Reserved} {
		if len(texts) > spansMost {
			pp.refuse("spec.%s would have %d entries, and may have %d: split the pool", field, len(texts), spansMost)
		}
	}
	if _, errs := convert.Pool(pp.pool); len(errs) > 0 {
		pp.refuse("%s", errs.ToAggregate())
	}
}

// needed returns the addresses of the subnet that the source hands out, or has handed out.
func (pp *poolPlan) needed() *netipx.IPSet {
	return common(union(pp.addresses, setOfHoldings(pp.holdings)), setOfPrefix(pp.network))
}

// reservedByImport on a pool holds the part of spec.reserved that stays with Metal3.
const reservedByImport = "ipam.cadastre.dev/reserved-by-import"

// reserveKept makes the pool reserve the addresses that stay with Metal3 now, and no longer those
// that Metal3 has released. Addresses that a person has reserved since then stay reserved.
func (pp *poolPlan) reserveKept() error {
	annotations, kept := pp.pool.GetAnnotations(), setOfHoldings(pp.own)
	was, err := setOf(strings.Fields(annotations[reservedByImport]))
	if err != nil {
		return fmt.Errorf("%s: metadata.annotations: %s: %w", refOfPool(pp.pool), reservedByImport, err)
	}
	if isEmpty(was) && isEmpty(kept) {
		return nil
	}
	spec := &pp.pool.Spec.PoolSpec
	now, err := setOf(spec.Reserved)
	if err != nil {
		return fmt.Errorf("%s: spec.reserved: %w", refOfPool(pp.pool), err)
	}
	spec.Reserved = textsOf(union(minus(now, minus(common(was, pp.addresses), pp.excluded)), kept))
	if annotations[reservedByImport] = strings.Join(textsOf(kept), " "); isEmpty(kept) {
		delete(annotations, reservedByImport)
	}
	pp.pool.SetAnnotations(annotations)
	return nil
}

func setOfHoldings(holdings []holding) *netipx.IPSet {
	var all netipx.IPSetBuilder
	for _, h := range holdings {
		all.Add(h.addr)
	}
	return built(&all)
}

// canonical writes an address as the API does; another text stays as it is.
func canonical(text string) string {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.Unmap().String()
	}
	return text
}

// spaces holds the taken blocks, and the wanted subnets, of each namespace.
type spaces struct {
	taken    map[string][]occupied
	networks map[string][]netip.Prefix
}

// occupied holds blocks of the default routing domain, and the pool that has them.
type occupied struct {
	blocks []netip.Prefix
	pool   ipam.Holder
}

// newSpaces returns the blocks of our pools, and the subnets of sources to be imported, now or later.
func newSpaces(sources []*poolPlan, existing []*v1alpha1.LocalIPPool) spaces {
	m := spaces{taken: map[string][]occupied{}, networks: map[string][]netip.Prefix{}}
	for _, pool := range existing {
		if pool.Spec.ParentRef != nil || !isInDefault(pool) {
			continue
		}
		m.taken[pool.Namespace] = append(m.taken[pool.Namespace], occupied{blocksOf(pool), refOfPool(pool)})
	}
	for _, pp := range sources {
		isLater := pp.pool == nil
		if pp.network.IsValid() && (isLater || !pp.exists && len(pp.problems) == 0) {
			m.networks[pp.ref.Namespace] = append(m.networks[pp.ref.Namespace], pp.network)
		}
	}
	return m
}

// blocksOf returns what a pool holds of its routing domain; its CIDR if its spec is not valid.
func blocksOf(pool *v1alpha1.LocalIPPool) []netip.Prefix {
	if blocks := convert.BlocksOf(pool); blocks != nil {
		return blocks
	}
	if cidr, err := netip.ParsePrefix(pool.Spec.CIDR); err == nil {
		return []netip.Prefix{cidr}
	}
	return nil
}

// place finds what a pool occupies of which routing domain, and takes it: its whole subnet. If other
// pools have or want a part of that, which Metal3 allows, it is the addresses that the pool needs;
// if those overlap, too, the pool gets a separate routing domain.
func (m spaces) place(pp *poolPlan) (domain string, occupies v1alpha1.PoolOccupies) {
	namespace := pp.ref.Namespace
	wanted := 0
	for _, network := range m.networks[namespace] {
		if network.Overlaps(pp.network) {
			wanted++ // one of them is that of the pool
		}
	}
	blocks := []netip.Prefix{pp.network}
	if wanted > 1 || len(m.overlapping(namespace, blocks)) > 0 {
		blocks, occupies = pp.needed().Prefixes(), v1alpha1.OccupiesRanges
	}
	if overlaps := m.overlapping(namespace, blocks); len(overlaps) > 0 {
		domain = domainOf(pp.pool)
		pp.notes = append(pp.notes, fmt.Sprintf("overlaps %s: it gets the routing domain %s, in which nothing keeps the two from handing out the same address", ipam.FirstFew(overlaps), domain))
		return domain, ""
	}
	m.taken[namespace] = append(m.taken[namespace], occupied{blocks, refOfPool(pp.pool)})
	return "", occupies
}

// overlapping returns the pools that have taken a part of some blocks, each with one of its own.
func (m spaces) overlapping(namespace string, blocks []netip.Prefix) []string {
	var names []string
	for _, o := range m.taken[namespace] {
		overlaps := func(block netip.Prefix) bool { return slices.ContainsFunc(blocks, block.Overlaps) }
		if i := slices.IndexFunc(o.blocks, overlaps); i >= 0 {
			names = append(names, fmt.Sprintf("%s (%s)", o.pool, o.blocks[i]))
		}
	}
	return names
}

func isInDefault(pool *v1alpha1.LocalIPPool) bool {
	domain := pool.Spec.RoutingDomain
	return domain == "" || domain == v1alpha1.DefaultRoutingDomain
}

// domainOf returns a routing domain for a pool alone: its name, as far as that is a valid one.
func domainOf(pool *v1alpha1.LocalIPPool) string {
	const most = 63
	name := strings.ReplaceAll(pool.Name, ".", "-")
	name = strings.TrimLeft(name[max(0, len(name)-most):], "-")
	if name == v1alpha1.DefaultRoutingDomain {
		return "default-pool" // the domain of the pool alone, and not the default one
	}
	return name
}

// parseSpan reads a single address, a CIDR, or a range of two addresses. Host bits of a CIDR do
// not count.
func parseSpan(text string) (netipx.IPRange, error) {
	text = strings.TrimSpace(text)
	switch {
	case strings.Contains(text, "-"):
		span, err := netipx.ParseIPRange(strings.ReplaceAll(text, " ", ""))
		if err != nil {
			return span, fmt.Errorf("%q is not a range of two addresses: write one such as 10.0.0.10-10.0.0.20", text)
		}
		return span, nil
	case strings.Contains(text, "/"):
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return netipx.IPRange{}, fmt.Errorf("%q is not a CIDR: write one such as 10.0.0.0/24", text)
		}
		return netipx.RangeOfPrefix(prefix), nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return netipx.IPRange{}, fmt.Errorf("%q is not an IP address: write one such as 10.0.0.1", text)
	}
	return netipx.IPRangeFrom(addr.Unmap(), addr.Unmap()), nil
}

// setOf returns the set of the addresses that the texts name.
func setOf(texts []string) (*netipx.IPSet, error) {
	var all netipx.IPSetBuilder
	for _, text := range texts {
		span, err := parseSpan(text)
		if err != nil {
			return nil, err
		}
		all.AddRange(span)
	}
	return all.IPSet()
}

// union, minus and common combine sets of addresses. A nil set is empty.
func union(sets ...*netipx.IPSet) *netipx.IPSet {
	var all netipx.IPSetBuilder
	for _, set := range sets {
		all.AddSet(set)
	}
	return built(&all)
}

func minus(a, b *netipx.IPSet) *netipx.IPSet {
	var all netipx.IPSetBuilder
	all.AddSet(a)
	all.RemoveSet(b)
	return built(&all)
}

func common(a, b *netipx.IPSet) *netipx.IPSet { return minus(a, minus(a, b)) }

func setOfPrefix(prefix netip.Prefix) *netipx.IPSet { return setOfRange(netipx.RangeOfPrefix(prefix)) }

func setOfRange(span netipx.IPRange) *netipx.IPSet {
	var all netipx.IPSetBuilder
	all.AddRange(span)
	return built(&all)
}

func built(b *netipx.IPSetBuilder) *netipx.IPSet {
	set, err := b.IPSet()
	if err != nil {
		return &netipx.IPSet{} // only a builder with invalid input has errors
	}
	return set
}

func isEmpty(set *netipx.IPSet) bool { return set == nil || len(set.Ranges()) == 0 }

// bounds returns the first and the last address of a set that is not empty.
func bounds(set *netipx.IPSet) (first, last netip.Addr) {
	ranges := set.Ranges()
	return ranges[0].From(), ranges[len(ranges)-1].To()
}

// cover returns the smallest block that has all addresses of a set of one family.
func cover(set *netipx.IPSet) netip.Prefix {
	first, last := bounds(set)
	for bits := first.BitLen(); ; bits-- {
		if block := netip.PrefixFrom(first, bits).Masked(); block.Contains(last) {
			return block
		}
	}
}

// textsOf writes a set out as a pool's ranges: single addresses, CIDRs, and ranges.
func textsOf(set *netipx.IPSet) []string {
	var texts []string
	for _, span := range set.Ranges() {
		prefix, isPrefix := span.Prefix()
		switch {
		case span.From() == span.To():
			texts = append(texts, span.From().String())
		case isPrefix:
			texts = append(texts, prefix.String())
		default:
			texts = append(texts, span.From().String()+"-"+span.To().String())
		}
	}
	return texts
}
