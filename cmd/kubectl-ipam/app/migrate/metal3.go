package migrate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Metal3's IP address manager, github.com/metal3-io/ip-address-manager, answers IPAddressClaims
// of Cluster API, and IPClaims of Metal3, by the name of the pool alone, whatever its API group.
// A pause of the pool does not stop it if the pool names no Cluster. So an import closes a pool
// by its spec: only the addresses in use are left in it, and each address of an IPAddressClaim is
// preallocated to that claim.
const (
	// importMetal3 names the command.
	importMetal3 = "metal3"
	// claimFinalizer and addressFinalizer name the finalizers that Metal3 puts on claims and
	// IPAddresses, and removes itself.
	claimFinalizer   = "ipam.metal3.io/ipaddressclaim"
	addressFinalizer = "ipam.metal3.io/ipaddress"
)

// metal3Kind returns one of Metal3's kinds.
func metal3Kind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "ipam.metal3.io", Version: "v1alpha1", Kind: kind}
}

// source represents one of Metal3's pools, as far as it can be read.
type source struct {
	// network holds the subnet that its addresses are configured with.
	network netip.Prefix
	// addresses holds the addresses that it can hand out, except those in excluded.
	addresses, excluded *netipx.IPSet
	gateway             string
	dnsServers          []string
	// cluster names the Cluster that it belongs to.
	cluster string
	// notes holds remarks on the pool that is made of it.
	notes []string
}

// metal3Spec holds the relevant fields of the spec of one of Metal3's pools.
type metal3Spec struct {
	ClusterName    string            `json:"clusterName,omitempty"`
	Pools          []metal3Part      `json:"pools,omitempty"`
	PreAllocations map[string]string `json:"preAllocations,omitempty"`
	Prefix         int               `json:"prefix,omitempty"`
	Gateway        string            `json:"gateway,omitempty"`
	DNSServers     []string          `json:"dnsServers,omitempty"`
	NamePrefix     string            `json:"namePrefix,omitempty"`
}

// metal3Part represents one of the ranges of a pool, with the settings of its addresses.
type metal3Part struct {
	Start      string   `json:"start,omitempty"`
	End        string   `json:"end,omitempty"`
	Subnet     string   `json:"subnet,omitempty"`
	Prefix     int      `json:"prefix,omitempty"`
	Gateway    string   `json:"gateway,omitempty"`
	DNSServers []string `json:"dnsServers,omitempty"`
}

// specBeforeImport on one of Metal3's pools holds its spec before an import closed it.
const specBeforeImport = "ipam.cadastre.dev/spec-before-import"

// metal3SpecOf returns the spec of a pool before it was closed.
func metal3SpecOf(pool *unstructured.Unstructured) (metal3Spec, error) {
	var spec metal3Spec
	if text, ok := pool.GetAnnotations()[specBeforeImport]; ok {
		if err := json.Unmarshal([]byte(text), &spec); err != nil {
			return spec, fmt.Errorf("metadata.annotations: %s cannot be read: restore it, or remove it to import the pool as it is now: %w", specBeforeImport, err)
		}
		return spec, nil
	}
	raw, _, err := unstructured.NestedMap(pool.Object, "spec")
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &spec)
	}
	if err != nil {
		return spec, fmt.Errorf("spec cannot be read: %w", err)
	}
	return spec, nil
}

// readMetal3 reads one of Metal3's pools.
func readMetal3(pool *unstructured.Unstructured) (source, error) {
	spec, err := metal3SpecOf(pool)
	s := source{addresses: &netipx.IPSet{}, cluster: spec.ClusterName}
	if err != nil {
		return s, err
	}
	if len(spec.Pools) == 0 {
		return s, errors.New("spec.pools: is empty: there is nothing to hand out")
	}
	settings := spec.settingsOf(spec.Pools[0])
	for i, part := range spec.Pools {
		span, err := part.span()
		if err != nil {
			return s, fmt.Errorf("spec.pools[%d]: %w", i, err)
		}
		if !reflect.DeepEqual(spec.settingsOf(part), settings) {
			return s, fmt.Errorf("spec.pools[%d]: has another prefix, gateway or other dnsServers than spec.pools[0], and a pool of Cadastre has one of each: split it into two pools", i)
		}
		s.addresses = union(s.addresses, setOfRange(span))
	}
	s.gateway, s.dnsServers = settings.Gateway, settings.DNSServers
	if err := s.setNetwork(settings.Prefix); err != nil {
		return s, err
	}
	return s, s.reservePreAllocations(spec)
}

// setNetwork sets the subnet of the addresses.
func (s *source) setNetwork(prefix int) error {
	first, last := bounds(s.addresses)
	if first.Is4() != last.Is4() {
		return errors.New("spec.pools: has addresses of both families: split it into two pools")
	}
	network, err := first.Prefix(prefix)
	switch {
	case err != nil || prefix == 0 && first.Is4():
		return fmt.Errorf("spec.prefix: %d is not the length of a subnet: correct it", prefix)
	case !network.Contains(last):
		return fmt.Errorf("spec.pools: %s and %s do not lie in one subnet of length %d: split it into two pools, one for each CIDR", first, last, prefix)
	}
	s.network = network
	if first.BitLen()-prefix == 1 {
		s.notes = append(s.notes, "a subnet of two addresses has no network and broadcast address: both are handed out (RFC 3021, RFC 6164)")
	}
	return nil
}

// reservePreAllocations reserves the addresses that are kept for claims of a certain name.
func (s *source) reservePreAllocations(spec metal3Spec) error {
	for _, claim := range slices.Sorted(maps.Keys(spec.PreAllocations)) {
		span, err := parseSpan(spec.PreAllocations[claim])
		if err != nil {
			return fmt.Errorf("spec.preAllocations[%s]: %w", claim, err)
		}
		s.excluded = union(s.excluded, setOfRange(span))
	}
	if n := len(spec.PreAllocations); n > 0 {
		s.notes = append(s.notes, fmt.Sprintf("preAllocations of %s are reserved: for such a claim take the address out of spec.reserved, and set its annotation %s", ipam.FormatCount(n, "claim"), v1alpha1.AnnotationAddress))
	}
	return nil
}

// settingsOf returns the settings of the addresses of a part: those of the part, or else those
// of the pool. If neither states a prefix, the length of the subnet stands in for it.
func (spec metal3Spec) settingsOf(part metal3Part) metal3Part {
	settings := metal3Part{
		Prefix: cmp.Or(part.Prefix, spec.Prefix), Gateway: cmp.Or(part.Gateway, spec.Gateway), DNSServers: part.DNSServers,
	}
	if subnet, err := netip.ParsePrefix(part.Subnet); settings.Prefix == 0 && err == nil {
		settings.Prefix = subnet.Bits()
	}
	if len(settings.DNSServers) == 0 {
		settings.DNSServers = spec.DNSServers
	}
	return settings
}

// span returns the range that a part hands out: from start, or the second address of the
// subnet, to end, or the last address of the subnet.
func (part metal3Part) span() (netipx.IPRange, error) {
	var from, to netip.Addr
	if part.Subnet != "" {
		subnet, err := netip.ParsePrefix(part.Subnet)
		if err != nil {
			return netipx.IPRange{}, fmt.Errorf("subnet %q is not a CIDR: correct it", part.Subnet)
		}
		from, to = subnet.Addr().Next(), netipx.PrefixLastIP(subnet)
	}
	for _, bound := range []struct {
		text string
		addr *netip.Addr
	}{{part.Start, &from}, {part.End, &to}} {
		if bound.text == "" {
			continue
		}
		var err error
		if *bound.addr, err = netip.ParseAddr(bound.text); err != nil {
			return netipx.IPRange{}, fmt.Errorf("%q is not an IP address: correct it", bound.text)
		}
	}
	span := netipx.IPRangeFrom(from, to)
	switch {
	case !from.IsValid() || !to.IsValid():
		return span, errors.New("has neither a subnet, nor both start and end: set end")
	case !span.IsValid():
		return span, fmt.Errorf("begins with %s and ends with %s: correct start or end", from, to)
	}
	return span, nil
}

// closeMetal3 leaves only the addresses in use in a pool, and preallocates each address of an
// IPAddressClaim to that claim, so that the address is not handed out to another claim when its
// IPAddress is deleted. Claims of Metal3's own kind stay with Metal3: it can hand out an
// address that one of them releases to another one. An annotation keeps the spec before that.
func closeMetal3(pool *unstructured.Unstructured, inUse []holding) error {
	before, err := metal3SpecOf(pool)
	if err != nil {
		return err
	}
	texts := slices.Collect(maps.Values(before.PreAllocations))
	after := metal3Spec{PreAllocations: map[string]string{}}
	maps.Copy(after.PreAllocations, before.PreAllocations)
	for _, h := range inUse {
		texts = append(texts, h.addr.String())
		if !h.isOwn {
			after.PreAllocations[h.claim] = h.addr.String()
		}
	}
	left, err := setOf(texts)
	if err != nil {
		return fmt.Errorf("spec.preAllocations: %w", err)
	}
	for _, part := range before.Pools {
		span, err := part.span()
		if err != nil {
			return fmt.Errorf("spec.pools: %w", err)
		}
		kept := common(left, setOfRange(span))
		after.Pools = append(after.Pools, part.parts(kept)...)
		left = minus(left, kept)
	}
	after.Pools = append(after.Pools, metal3Part{}.parts(left)...)
	saved, err := json.Marshal(before)
	if err != nil {
		return fmt.Errorf("saving spec: %w", err)
	}
	annotate(pool, map[string]string{specBeforeImport: string(saved)})
	return setMetal3(pool, after)
}

// parts returns the ranges of a set, with the settings of a part.
func (part metal3Part) parts(set *netipx.IPSet) []metal3Part {
	var parts []metal3Part
	for _, span := range set.Ranges() {
		kept := part
		kept.Subnet, kept.Start, kept.End = "", span.From().String(), span.To().String()
		parts = append(parts, kept)
	}
	return parts
}

// setMetal3 sets the fields of a spec that concern addresses.
func setMetal3(pool *unstructured.Unstructured, spec metal3Spec) error {
	written, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&metal3Spec{Pools: spec.Pools, PreAllocations: spec.PreAllocations})
	if err != nil {
		return fmt.Errorf("writing spec: %w", err)
	}
	for _, field := range []string{"pools", "preAllocations"} {
		if value, ok := written[field]; ok {
			err = unstructured.SetNestedField(pool.Object, value, "spec", field)
		} else {
			unstructured.RemoveNestedField(pool.Object, "spec", field)
		}
		if err != nil {
			return fmt.Errorf("writing spec.%s: %w", field, err)
		}
	}
	return nil
}

// reopenMetal3 restores the addresses that a pool could hand out before the import.
func reopenMetal3(pool *unstructured.Unstructured) error {
	if _, closed := pool.GetAnnotations()[specBeforeImport]; !closed {
		return nil
	}
	before, err := metal3SpecOf(pool)
	if err != nil {
		return err
	}
	unannotate(pool, specBeforeImport)
	return setMetal3(pool, before)
}
