package migrate

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// NetBox imports prefixes, IP addresses and IP ranges as NetBox's REST API gives them:
// /api/ipam/prefixes/, /api/ipam/ip-addresses/ and /api/ipam/ip-ranges/, each in pages with
// results, or as a list of objects. Prefixes become IPPools, and prefixes inside others their
// children; addresses become IPClaims in the namespace of the options.
func NetBox(ctx context.Context, c client.Client, o Options, exports ...io.Reader) error {
	g, err := readNetBox(exports, o)
	if err != nil {
		return err
	}
	return g.run(ctx, c, o)
}

// readNetBox reads exports of NetBox. Its errors concern a file as a whole.
func readNetBox(exports []io.Reader, o Options) (*register, error) {
	var pages []page
	for _, reader := range exports {
		read, err := readPages(reader)
		if err != nil {
			return nil, err
		}
		pages = append(pages, read...)
	}
	objects, err := objectsOf(pages)
	if err != nil {
		return nil, err
	}
	return registerOf(objects, o), nil
}

// netBox builds a register from an export.
type netBox struct {
	*register
	o Options
	// domains holds the routing domains of the VRFs, by id; that of the global one is empty.
	domains map[int64]string
	// prefixes holds the prefixes of the pools.
	prefixes map[*v1alpha1.IPPool]*netBoxPrefix
	// names holds the names of the claims, and claimed their pools and blocks.
	names, claimed map[string]bool
}

// netBoxPrefix holds the id of the VRF of a prefix, the addresses that are not handed out, and
// those that have a holder, or belong to the CIDR of a child.
type netBoxPrefix struct {
	vrf            int64
	reserved, held netipx.IPSetBuilder
}

// registerOf makes pools and claims of objects, whatever their order.
func registerOf(objects []netBoxObject, o Options) *register {
	slices.SortStableFunc(objects, compareObjects)
	n := &netBox{
		register: newRegister("netbox"), o: o, domains: domainsOf(objects), prefixes: map[*v1alpha1.IPPool]*netBoxPrefix{},
		names: map[string]bool{}, claimed: map[string]bool{},
	}
	for _, object := range objects {
		at := location{text: object.title()}
		switch _, ok := n.domains[object.vrf()]; {
		case !ok:
			n.problem(at, "its VRF %q has no id: export it as NetBox's REST API gives it", object.VRF.Name)
		case object.Prefix != "":
			n.addPrefix(at, object)
		case object.Address != "":
			n.addAddress(at, object)
		case object.StartAddress != "":
			n.addRange(at, object)
		default:
			n.problem(at, "is neither a prefix, nor an IP address, nor an IP range: leave it out")
		}
	}
	for pool, prefix := range n.prefixes {
		pool.Spec.Reserved = textsOf(minus(built(&prefix.reserved), built(&prefix.held)))
	}
	return n.register
}

// addPrefix makes a pool of a prefix. If the prefix is reserved or deprecated, none of it is
// handed out: it is reserved in the pool that it is part of.
func (n *netBox) addPrefix(at location, object netBoxObject) {
	cidr := object.cidr()
	if !cidr.IsValid() {
		n.problem(at, "is not a CIDR: correct it")
		return
	}
	if same := n.smallest(object, cidr, cidr.Bits()); same != nil && cidrOf(same) == cidr {
		n.note(at, "-", "is in the export twice: the other one becomes IPPool %s", same.Name)
		return
	}
	parent := n.smallest(object, cidr, cidr.Bits()-1)
	switch {
	case object.isUnused() && parent == nil:
		n.note(at, "-", "is %s, and part of no other prefix: nothing could hand it out", object.Status)
		return
	case object.isUnused():
		n.prefixes[parent].reserved.AddPrefix(cidr)
		n.note(at, "reserved in IPPool "+parent.Name, "is %s", object.Status)
		return
	}
	domain := n.domains[object.vrf()]
	pool := n.addPool(at, nameOfPrefix(cidr, domain), cidr.String(), object.Description)
	n.prefixes[pool] = &netBoxPrefix{vrf: object.vrf()}
	if parent != nil {
		pool.Spec.ParentRef = poolReference(parent.Name)
		n.prefixes[parent].held.AddPrefix(cidr)
	} else {
		pool.Spec.RoutingDomain = domain
	}
	if object.Status != "container" && !object.IsPool {
		pool.Spec.Network = &v1alpha1.PoolNetwork{PrefixLength: int32(cidr.Bits())} //nolint:gosec // 0 to 128
	}
}

// smallest returns the smallest pool of the object's VRF that contains a block, or nil.
func (n *netBox) smallest(object netBoxObject, block netip.Prefix, longest int) *v1alpha1.IPPool {
	found := n.register.smallest(block, longest, func(p *v1alpha1.IPPool) bool { return n.prefixes[p].vrf == object.vrf() })
	if len(found) == 0 {
		return nil
	}
	return found[0]
}

// addRange reserves an IP range, each part of it in the smallest pool that has the part: by
// NetBox's definition, something else, such as a DHCP server, hands out the addresses of a
// range. Addresses with a holder stay with the holder.
func (n *netBox) addRange(at location, object netBoxObject) {
	first, _, _ := strings.Cut(object.StartAddress, "/")
	last, _, _ := strings.Cut(object.EndAddress, "/")
	span, err := parseSpan(first + "-" + last)
	if err != nil {
		n.problem(at, "%s", err)
		return
	}
	left := setOfRange(span)
	block := cover(left)
	var names []string
	for _, pool := range slices.Backward(n.pools) { // smaller ones first
		cidr := cidrOf(pool)
		if n.prefixes[pool].vrf != object.vrf() || !cidr.Overlaps(block) {
			continue
		}
		part := common(left, setOfPrefix(cidr))
		if isEmpty(part) {
			continue
		}
		n.prefixes[pool].reserved.AddSet(part)
		names = append(names, pool.Name)
		left = minus(left, part)
	}
	if !isEmpty(left) {
		n.problem(at, "no prefix of %s has %s: export that as well", object.vrfTitle(), ipam.FirstFew(textsOf(left)))
		return
	}
	slices.Sort(names)
	n.note(at, "reserved in IPPool "+ipam.FirstFew(names), "is %s", object.Status)
}

// addAddress makes a claim of an address. If the address has no holder yet, or something else
// hands it out, addAddress reserves it.
func (n *netBox) addAddress(at location, object netBoxObject) {
	block := object.cidr()
	if !block.IsValid() {
		n.problem(at, "is not an address: correct it")
		return
	}
	pool := n.smallest(object, block, block.Bits())
	if pool == nil {
		n.problem(at, "no prefix of %s has it: export that as well", object.vrfTitle())
		return
	}
	if n.o.Reserve || object.isUnclaimed() {
		n.prefixes[pool].reserved.AddPrefix(block)
		n.note(at, "reserved in IPPool "+pool.Name, "is %s", object.Status)
		return
	}
	if read, errs := convert.Pool(pool); len(errs) == 0 && read.Withheld.Overlaps(block) {
		n.note(at, "-", "IPPool %s never hands it out, so no claim has to hold it", pool.Name)
		return
	}
	if n.claimed[pool.Name+" "+block.String()] {
		n.note(at, "-", "is in the export more than once, as %s: one claim holds it", object.describe())
		return
	}
	n.prefixes[pool].held.AddPrefix(block)
	n.claimed[pool.Name+" "+block.String()] = true
	n.addClaim(at, client.ObjectKey{Namespace: n.o.Namespace, Name: n.nameOf(object, block)}, pool.Name, block, object.describe())
}

// nameOf returns a name for the claim of an address: its DNS name, if it is the first address
// of that name, and otherwise the address.
func (n *netBox) nameOf(object netBoxObject, block netip.Prefix) string {
	name := strings.ToLower(strings.TrimSuffix(object.DNSName, "."))
	if name == "" || len(validation.IsDNS1123Subdomain(name)) > 0 || n.names[name] {
		name = withDomain(nameOfBlock(block), n.domains[object.vrf()])
	}
	n.names[name] = true
	return name
}

// nameOfPrefix returns a name for the pool of a prefix: net-10-0-0-0-24, or with a domain.
func nameOfPrefix(cidr netip.Prefix, domain string) string {
	return withDomain(fmt.Sprintf("net-%s-%d", dashed(cidr.Addr()), cidr.Bits()), domain)
}

func withDomain(name, domain string) string { return strings.TrimSuffix(name+"-"+domain, "-") }

// domainsOf returns names of the routing domains of all VRFs, by id: derived from the names of
// the VRFs. If derived names are equal, empty, or the default one, the id is added.
func domainsOf(objects []netBoxObject) map[int64]string {
	words, domains := map[int64]string{}, map[int64]string{0: ""}
	for _, object := range objects {
		if object.VRF != nil && object.VRF.ID != 0 {
			words[object.VRF.ID] = wordOf(object.VRF.Name)
		}
	}
	withID := func(id int64) string { return fmt.Sprintf("%s-%d", cmp.Or(words[id], "vrf"), id) }
	for id, word := range words {
		if domains[id] = word; word == "" || word == v1alpha1.DefaultRoutingDomain {
			domains[id] = withID(id)
		}
	}
	for changed := true; changed; { // a name with an id may be that of another VRF
		changed = false
		counts := map[string]int{}
		for _, domain := range domains {
			counts[domain]++
		}
		for id := range words {
			if counts[domains[id]] > 1 && domains[id] != withID(id) {
				domains[id], changed = withID(id), true
			}
		}
	}
	return domains
}

// wordOf returns a text as names and routing domains can have it: in lower case, with hyphens.
func wordOf(text string) string {
	const most = 40
	isOther := func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') }
	word := strings.Join(strings.FieldsFunc(strings.ToLower(text), isOther), "-")
	return strings.TrimSuffix(word[:min(len(word), most)], "-")
}
