package movein

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// NetBox imports prefixes, IP addresses and IP ranges as NetBox's REST API gives them:
// /api/ipam/prefixes/, /api/ipam/ip-addresses/ and /api/ipam/ip-ranges/, each as a page with
// its results, or as a list of objects. Prefixes become IPPools, those inside others their
// children; addresses become IPClaims of the namespace of the options.
func NetBox(ctx context.Context, c client.Client, o Options, in ...io.Reader) error {
	g, err := readNetBox(in, o)
	if err != nil {
		return err
	}
	return g.run(ctx, c, o)
}

// choice is a value of NetBox that one chooses from a list: a word, or its value and label.
type choice string

// UnmarshalJSON implements json.Unmarshaler.
func (c *choice) UnmarshalJSON(text []byte) error {
	var object struct {
		Value string `json:"value"`
	}
	if err := json.Unmarshal(text, &object); err == nil {
		*c = choice(object.Value)
		return nil
	}
	var word string
	err := json.Unmarshal(text, &word)
	*c = choice(word)
	return err
}

// netBoxObject is what counts of a prefix, an IP address, or an IP range.
type netBoxObject struct {
	ID           int64           `json:"id"`
	Prefix       string          `json:"prefix"`
	Address      string          `json:"address"`
	StartAddress string          `json:"start_address"`
	EndAddress   string          `json:"end_address"`
	Status       choice          `json:"status"`
	IsPool       bool            `json:"is_pool"`
	DNSName      string          `json:"dns_name"`
	Description  string          `json:"description"`
	VRF          *netBoxNamed    `json:"vrf"`
	Assigned     *netBoxAssigned `json:"assigned_object"`
}

type netBoxNamed struct {
	Name string `json:"name"`
}

// netBoxAssigned is the interface that has an address, and the device or the virtual
// machine that has the interface.
type netBoxAssigned struct {
	Name           string       `json:"name"`
	Device         *netBoxNamed `json:"device"`
	VirtualMachine *netBoxNamed `json:"virtual_machine"`
}

// readNetBox reads exports of NetBox. Errors are those of a file as a whole.
func readNetBox(in []io.Reader, o Options) (*register, error) {
	var objects []netBoxObject
	for _, reader := range in {
		read, err := readObjects(reader)
		if err != nil {
			return nil, err
		}
		objects = append(objects, read...)
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("there are no objects in what was read: export /api/ipam/prefixes/ and /api/ipam/ip-addresses/, with ?limit=0")
	}
	n := &netBox{register: newRegister("netbox"), held: map[string]bool{}, o: o, spaces: map[string][]*v1alpha1.IPPool{}}
	n.addPrefixes(objects)
	for _, object := range objects {
		switch {
		case object.StartAddress != "":
			n.addRange(object)
		case object.Address != "":
			n.addAddress(object)
		case object.Prefix == "":
			n.problem(fmt.Sprintf("object %d", object.ID), "is neither a prefix, nor an IP address, nor an IP range: leave it out")
		}
	}
	return n.register, nil
}

// readObjects reads a page with its results, or a list.
func readObjects(in io.Reader) ([]netBoxObject, error) {
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	if text = bytes.TrimSpace(text); bytes.HasPrefix(text, []byte("[")) {
		var objects []netBoxObject
		if err := json.Unmarshal(text, &objects); err != nil {
			return nil, fmt.Errorf("what was read is not a list of objects of NetBox: %w", err)
		}
		return objects, nil
	}
	var page struct {
		Next    *string        `json:"next"`
		Results []netBoxObject `json:"results"`
	}
	if err := json.Unmarshal(text, &page); err != nil {
		return nil, fmt.Errorf("what was read is not JSON as NetBox's REST API gives it: %w", err)
	}
	if page.Next != nil {
		return nil, fmt.Errorf("what was read is one page of several: export all of it, with ?limit=0")
	}
	return page.Results, nil
}

// netBox gathers what an export comes to.
type netBox struct {
	*register
	o Options
	// spaces are the pools of each VRF, parents first.
	spaces map[string][]*v1alpha1.IPPool
	// held are the blocks of the claims, after the names of their pools.
	held map[string]bool
}

// addPrefixes makes pools of prefixes, larger ones first, so that each finds the one that
// it is part of.
func (n *netBox) addPrefixes(objects []netBoxObject) {
	type prefix struct {
		netBoxObject
		cidr netip.Prefix
	}
	var prefixes []prefix
	for _, object := range objects {
		if object.Prefix == "" {
			continue
		}
		cidr, err := netip.ParsePrefix(object.Prefix)
		if err != nil {
			n.problem("prefix "+object.Prefix, "is not a CIDR: correct it")
			continue
		}
		prefixes = append(prefixes, prefix{object, cidr.Masked()})
	}
	slices.SortStableFunc(prefixes, func(a, b prefix) int {
		if a.cidr.Bits() != b.cidr.Bits() {
			return a.cidr.Bits() - b.cidr.Bits()
		}
		return a.cidr.Addr().Compare(b.cidr.Addr())
	})
	for _, p := range prefixes {
		n.addPrefix(p.netBoxObject, p.cidr)
	}
}

// addPrefix makes a pool of a prefix. Where it is reserved or deprecated, nothing is to be
// handed out of it: it is reserved in the pool that it is part of.
func (n *netBox) addPrefix(object netBoxObject, cidr netip.Prefix) {
	vrf, title := object.vrf(), "prefix "+object.Prefix
	parent := n.smallest(vrf, setOfPrefix(cidr))
	switch {
	case parent != nil && cidrOf(parent) == cidr:
		n.note(title, "-", "is in the export twice: the other one becomes IPPool %s", parent.Name)
		return
	case object.Status == "reserved" || object.Status == "deprecated":
		if parent == nil {
			n.note(title, "-", "is %s, and part of no other prefix: nothing could hand it out", object.Status)
			return
		}
		reserve(parent, setOfPrefix(cidr))
		n.note(title, "reserved in IPPool "+parent.Name, "is %s", object.Status)
		return
	}
	name := nameOfPrefix(cidr, vrf)
	pool := n.newHeldPool(name, cidr, object.Description)
	switch {
	case parent != nil:
		pool.Spec.ParentRef = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: parent.Name}
	case vrf != "":
		pool.Spec.RoutingDomain = wordOf(vrf)
	}
	if object.Status != "container" && !object.IsPool {
		pool.Spec.Network = &v1alpha1.PoolNetwork{PrefixLength: int32(cidr.Bits())} //nolint:gosec // 0 to 128
	}
	n.pools = append(n.pools, pool)
	n.spaces[vrf] = append(n.spaces[vrf], pool)
}

// smallest is the smallest pool of a VRF that has all of a set; nil where there is none.
func (n *netBox) smallest(vrf string, set *netipx.IPSet) *v1alpha1.IPPool {
	first, last := bounds(set)
	for _, pool := range slices.Backward(n.spaces[vrf]) { // larger ones come first
		if cidr := cidrOf(pool); cidr.Contains(first) && cidr.Contains(last) {
			return pool
		}
	}
	return nil
}

// addRange reserves an IP range: NetBox says of one that its addresses are handed out by
// something else, such as a DHCP server.
func (n *netBox) addRange(object netBoxObject) {
	title := fmt.Sprintf("IP range %s-%s", object.StartAddress, object.EndAddress)
	first, _, _ := strings.Cut(object.StartAddress, "/")
	last, _, _ := strings.Cut(object.EndAddress, "/")
	span, err := parseSpan(first + "-" + last)
	if err != nil {
		n.problem(title, "%s", err)
		return
	}
	n.reserveIn(title, object, setOfRange(span))
}

func (n *netBox) reserveIn(title string, object netBoxObject, set *netipx.IPSet) {
	pool := n.smallest(object.vrf(), set)
	if pool == nil {
		n.problem(title, "no prefix of %s has it: export that as well", object.vrfTitle())
		return
	}
	reserve(pool, set)
	n.note(title, "reserved in IPPool "+pool.Name, "is %s", object.Status)
}

// addAddress makes a claim of an address: of one that nobody has yet, or that something
// else hands out, it is reserved.
func (n *netBox) addAddress(object netBoxObject) {
	title := "IP address " + object.Address
	text, _, _ := strings.Cut(object.Address, "/")
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		n.problem(title, "is not an address: correct it")
		return
	}
	set := setOfAddrs(addr)
	if n.o.Reserve || object.Status == "reserved" || object.Status == "dhcp" || object.Status == "slaac" {
		n.reserveIn(title, object, set)
		return
	}
	pool := n.smallest(object.vrf(), set)
	if pool == nil {
		n.problem(title, "no prefix of %s has it: export that as well", object.vrfTitle())
		return
	}
	block := netip.PrefixFrom(addr, addr.BitLen())
	if reserved, err := setOf(pool.Spec.Reserved); err == nil && reserved.Contains(addr) || n.isEdge(pool, addr) {
		n.note(title, "-", "IPPool %s never hands it out, so nobody has to hold it", pool.Name)
		return
	}
	claim := n.newHeldClaim(client.ObjectKey{Namespace: n.o.Namespace, Name: n.nameOf(object, block)}, pool.Name, block, object.describe())
	if n.held[pool.Name+" "+claim.Spec.CIDR] {
		n.note(title, "-", "is in the export more than once, as %s: one claim holds it", object.describe())
		return
	}
	n.held[pool.Name+" "+claim.Spec.CIDR] = true
	n.hold(title, claim)
}

// isEdge reports whether an address is the first or, in IPv4, the last one of the subnet of
// a pool.
func (n *netBox) isEdge(pool *v1alpha1.IPPool, addr netip.Addr) bool {
	cidr := cidrOf(pool)
	if pool.Spec.Network == nil || cidr.Addr().BitLen()-cidr.Bits() <= 1 {
		return false
	}
	return addr == cidr.Addr() || addr.Is4() && addr == netipx.PrefixLastIP(cidr)
}

// nameOf is a name for the claim of an address: its DNS name, if it is the only one of that
// name, and otherwise the address.
func (n *netBox) nameOf(object netBoxObject, block netip.Prefix) string {
	name := strings.ToLower(strings.TrimSuffix(object.DNSName, "."))
	if name != "" && len(validation.IsDNS1123Subdomain(name)) == 0 && !n.names[client.ObjectKey{Namespace: n.o.Namespace, Name: name}] {
		return name
	}
	if vrf := object.vrf(); vrf != "" {
		return nameOfBlock(block) + "-" + wordOf(vrf)
	}
	return nameOfBlock(block)
}

// describe says who has an address.
func (o netBoxObject) describe() string {
	var texts []string
	if o.Assigned != nil {
		owner := ""
		switch {
		case o.Assigned.Device != nil:
			owner = o.Assigned.Device.Name
		case o.Assigned.VirtualMachine != nil:
			owner = o.Assigned.VirtualMachine.Name
		}
		texts = append(texts, strings.TrimSpace(owner+" "+o.Assigned.Name))
	}
	if o.Description != "" {
		texts = append(texts, o.Description)
	}
	if len(texts) == 0 {
		return fmt.Sprintf("NetBox IP address %d", o.ID)
	}
	return strings.Join(texts, ": ")
}

func (o netBoxObject) vrf() string {
	if o.VRF == nil {
		return ""
	}
	return o.VRF.Name
}

func (o netBoxObject) vrfTitle() string {
	if o.VRF == nil {
		return "the global VRF"
	}
	return "the VRF " + o.VRF.Name
}

// nameOfPrefix is a name for the pool of a prefix: net-10-0-0-0-24, with the VRF where it is
// in one.
func nameOfPrefix(cidr netip.Prefix, vrf string) string {
	name := fmt.Sprintf("net-%s-%d", strings.NewReplacer(".", "-", ":", "-").Replace(cidr.Addr().StringExpanded()), cidr.Bits())
	if vrf != "" {
		name += "-" + wordOf(vrf)
	}
	return name
}

// wordOf is a text as a name may have it, and a routing domain: in lower case, with - for
// all that is neither a letter nor a digit.
func wordOf(text string) string {
	const most = 40
	var b strings.Builder
	for _, c := range strings.ToLower(text) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			b.WriteRune(c)
		} else if b.Len() > 0 && !strings.HasSuffix(b.String(), "-") {
			b.WriteByte('-')
		}
		if b.Len() == most {
			break
		}
	}
	return strings.Trim(b.String(), "-")
}
