package migrate

import (
	"fmt"
	"maps"
	"net/netip"
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

// becoming holds a pool of another provider, and the pool that it becomes.
type becoming struct {
	source
	// pool holds the pool to be made, or the pool that an earlier import has made.
	pool v1alpha1.Pool
	// exists is set if the pool exists already.
	exists bool
	// held holds the addresses in use of the source, and kept those of them that stay with the
	// other provider.
	held, kept *netipx.IPSet
}

// target returns the pool that a source becomes, without its spec: see fill.
func (p provider) target(s source, o Options) v1alpha1.Pool {
	pool := v1alpha1.NewPool(s.becomes)
	suffix := p.suffix
	if o.Suffix != nil {
		suffix = *o.Suffix
	}
	pool.SetName(s.ref.Name + suffix)
	pool.SetNamespace(s.ref.Namespace)
	labels := maps.Clone(s.obj.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[labelImport] = p.name
	if s.cluster != "" {
		labels[v1alpha1.LabelCluster] = s.cluster
	}
	pool.SetLabels(labels)
	paused := pausedValue
	if s.paused {
		paused = "true"
	}
	pool.SetAnnotations(map[string]string{v1alpha1.AnnotationPaused: paused, annotationOrigin: origin{Pool: s.ref}.text()})
	for _, owner := range s.obj.GetOwnerReferences() {
		pool.SetOwnerReferences(append(pool.GetOwnerReferences(), metav1.OwnerReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}))
	}
	return pool
}

// refOfPool returns the reference to a pool of ours.
func refOfPool(pool v1alpha1.Pool) poolRef {
	return poolRef{Group: v1alpha1.GroupVersion.Group, Kind: string(pool.PoolKind()), Namespace: pool.GetNamespace(), Name: pool.GetName()}
}

// fill writes the spec of the pool, once its CIDR is known.
func (b *becoming) fill(cidr netip.Prefix, domain string) {
	own := setOfPrefix(cidr)
	spec := b.pool.PoolSpec()
	spec.CIDR, spec.RoutingDomain = cidr.String(), domain
	spec.Network = &v1alpha1.PoolNetwork{
		PrefixLength: int32(b.network.Bits()), //nolint:gosec // 0 to 128
		Gateway:      canonical(b.gateway), AllocateEdgeAddresses: b.edges,
		HostSettings: v1alpha1.HostSettings{DNSServers: b.dnsServers},
	}
	if ranges := common(b.addresses, own); !ranges.Equal(own) {
		spec.Ranges = textsOf(ranges)
	}
	spec.Reserved = b.reserved(cidr)
}

// reserved returns the addresses that the pool of a CIDR never hands out: those that the source
// excludes, and those that stay with the other provider.
func (b *becoming) reserved(cidr netip.Prefix) []string {
	return textsOf(common(union(b.excluded, b.kept), setOfPrefix(cidr)))
}

// reservedByImport on a pool holds the part of spec.reserved that stays with the other
// provider.
const reservedByImport = "ipam.cadastre.dev/reserved-by-import"

// reserveKept makes the pool reserve the addresses that stay with the other provider now, and
// no longer those that the other provider has released. Addresses that a person has reserved
// since then stay reserved.
func (b *becoming) reserveKept() error {
	annotations := b.pool.GetAnnotations()
	was, err := setOf(strings.Fields(annotations[reservedByImport]))
	if err != nil {
		return fmt.Errorf("%s: metadata.annotations: %s: %w", refOfPool(b.pool), reservedByImport, err)
	}
	if isEmpty(was) && isEmpty(b.kept) {
		return nil
	}
	spec := b.pool.PoolSpec()
	now, err := setOf(spec.Reserved)
	if err != nil {
		return fmt.Errorf("%s: spec.reserved: %w", refOfPool(b.pool), err)
	}
	spec.Reserved = textsOf(union(minus(now, minus(was, b.excluded)), b.kept))
	if annotations[reservedByImport] = strings.Join(textsOf(b.kept), " "); isEmpty(b.kept) {
		delete(annotations, reservedByImport)
	}
	b.pool.SetAnnotations(annotations)
	return nil
}

// check notes why the pool could not be made.
func (b *becoming) check() {
	spec := b.pool.PoolSpec()
	for field, texts := range map[string][]string{"ranges": spec.Ranges, "reserved": spec.Reserved} {
		if len(texts) > spansMost {
			b.source = b.without("spec.%s would have %d entries, and may have %d: split the pool", field, len(texts), spansMost)
		}
	}
	if _, errs := convert.Pool(b.pool); len(errs) > 0 {
		b.source = b.without("%s", errs.ToAggregate())
	}
}

// canonical writes an address as the API does; another text stays as it is.
func canonical(text string) string {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.Unmap().String()
	}
	return text
}

// place gives each pool to be made its CIDR: its whole subnet. If that overlaps another pool,
// which the other provider allows, the CIDR is the smallest block that has the pool's
// addresses; if those overlap, too, the pool gets a separate routing domain. Pools that exist
// come first; skippedSources holds the sources that are not imported now.
func place(all []*becoming, skippedSources []source, existing []v1alpha1.Pool) {
	m := newSpaces(all, skippedSources, existing)
	for _, b := range all {
		if b.isNew() {
			b.fill(m.place(b))
			b.check()
		}
	}
}

// isNew reports whether the pool is still to be made, and can be.
func (b *becoming) isNew() bool { return !b.exists && len(b.problems) == 0 }

// spaces holds the taken CIDRs, and the wanted subnets, of each namespace; those of all
// cluster-scoped pools are under the empty name.
type spaces struct {
	taken    map[string][]occupied
	networks map[string][]netip.Prefix
}

func newSpaces(all []*becoming, skippedSources []source, existing []v1alpha1.Pool) spaces {
	m := spaces{taken: map[string][]occupied{}, networks: map[string][]netip.Prefix{}}
	for _, pool := range existing {
		if prefix, err := netip.ParsePrefix(pool.PoolSpec().CIDR); err == nil && pool.PoolSpec().ParentRef == nil && isInDefault(pool) {
			m.taken[pool.GetNamespace()] = append(m.taken[pool.GetNamespace()], occupied{prefix, refOfPool(pool)})
		}
	}
	for _, s := range skippedSources {
		if s.network.IsValid() {
			m.networks[s.obj.GetNamespace()] = append(m.networks[s.obj.GetNamespace()], s.network)
		}
	}
	for _, b := range all {
		if b.isNew() {
			m.networks[b.ref.Namespace] = append(m.networks[b.ref.Namespace], b.network)
		}
	}
	return m
}

// place finds the CIDR and the routing domain of a pool, and takes them.
func (m spaces) place(b *becoming) (cidr netip.Prefix, domain string) {
	namespace := b.ref.Namespace
	cidr = b.network
	isWanted := count(m.networks[namespace], func(p netip.Prefix) bool { return p.Overlaps(b.network) }) > 1
	if isWanted || len(overlapping(m.taken[namespace], cidr)) > 0 {
		cidr = cover(union(b.addresses, b.held))
	}
	if overlaps := overlapping(m.taken[namespace], cidr); len(overlaps) > 0 {
		domain = domainOf(b.pool)
		b.source = b.with("overlaps %s: it gets the routing domain %s, in which nothing keeps the two from handing out the same address", ipam.FirstFew(overlaps), domain)
		return cidr, domain
	}
	m.taken[namespace] = append(m.taken[namespace], occupied{cidr, refOfPool(b.pool)})
	return cidr, ""
}

// occupied holds a CIDR of the default routing domain, and the pool that has it.
type occupied struct {
	cidr netip.Prefix
	pool poolRef
}

func overlapping(taken []occupied, cidr netip.Prefix) []string {
	var names []string
	for _, o := range taken {
		if o.cidr.Overlaps(cidr) {
			names = append(names, fmt.Sprintf("%s (%s)", o.pool, o.cidr))
		}
	}
	return names
}

func isInDefault(pool v1alpha1.Pool) bool {
	domain := pool.PoolSpec().RoutingDomain
	return domain == "" || domain == v1alpha1.DefaultRoutingDomain
}

// domainOf returns a routing domain for a pool alone: its name, as far as that is a valid one.
func domainOf(pool v1alpha1.Pool) string {
	const most = 63
	name := []byte(pool.GetName())
	for i, c := range name {
		if c == '.' {
			name[i] = '-'
		}
	}
	if len(name) > most {
		name = name[len(name)-most:]
	}
	for len(name) > 1 && name[0] == '-' {
		name = name[1:]
	}
	if string(name) == v1alpha1.DefaultRoutingDomain {
		return "default-pool" // the domain of the pool alone, and not the default one
	}
	return string(name)
}

func count[T any](all []T, matches func(T) bool) int {
	n := 0
	for _, one := range all {
		if matches(one) {
			n++
		}
	}
	return n
}
