package convert

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// texts holds blocks and addresses, good and bad.
var texts = []string{
	"10.0.0.0/24", "10.0.0.1/24", "0.0.0.0/0", "255.255.255.255/32", "10.0.0.0/33", "010.0.0.0/8", "10.0.0.0", "10.0.0.0/8 ",
	"2001:db8::/32", "2001:DB8::/32", "2001:db8:0:0::/48", "::/0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128", "::ffff:10.0.0.0/104",
	"::10.0.0.0/104", "fe80::%eth0/64", "1::/129", "", "/", "-", "here", "10.0.0.1", "2001:db8::1", "::", "::ffff:10.0.0.1", "fe80::1%1",
}

// families holds those that the schema lets through.
var families = []v1alpha1.IPFamily{"", v1alpha1.IPv4, v1alpha1.IPv6}

func FuzzBlock(f *testing.F) {
	for _, text := range texts {
		f.Add(text)
	}
	path := field.NewPath("spec", "cidr")
	f.Fuzz(func(t *testing.T, text string) {
		block, err := Block(path, text)
		if err == nil && (block.String() != text || block != block.Masked() || block.Addr().Is4In6() || block.Addr().Zone() != "") {
			t.Errorf("Block(%q) = %v, not the same", text, block)
		}
		if suggestion, ok := checkAnswer(t, text, block.IsValid(), err); ok {
			if _, err := Block(path, suggestion); err != nil {
				t.Errorf("Block(%q) suggests a text that is refused too: %v", text, err)
			}
		}
		addr, err := Addr(path, text)
		if err == nil && (addr.String() != text || addr.Is4In6() || addr.Zone() != "") {
			t.Errorf("Addr(%q) = %v, not the same", text, addr)
		}
		if suggestion, ok := checkAnswer(t, text, addr.IsValid(), err); ok {
			if _, err := Addr(path, suggestion); err != nil {
				t.Errorf("Addr(%q) suggests a text that is refused too: %v", text, err)
			}
		}
	})
}

// checkAnswer fails unless the answer is either a value or an error that names
// field, value and remedy. It gives what the error suggests to write instead.
func checkAnswer(t *testing.T, text string, valid bool, err *field.Error) (suggestion string, ok bool) {
	t.Helper()
	if (err == nil) != valid {
		t.Fatalf("%q: got an error: %v, and a value: %t", text, err, valid)
	}
	if err == nil {
		return "", false
	}
	if err.Field != "spec.cidr" || err.BadValue != any(text) || err.Detail == "" {
		t.Errorf("%q: %v does not name field, value and remedy", text, err)
	}
	_, suggestion, ok = strings.Cut(err.Detail, `"`)
	suggestion, _, _ = strings.Cut(suggestion, `"`)
	return suggestion, ok
}

func FuzzPool(f *testing.F) {
	for i, text := range texts {
		f.Add(text, "", int16(-1), "10.0.0.10-10.0.0.20\n10.0.0.32/28", "10.0.0.12", uint16(24), "10.0.0.1", int16(-1), int16(-1), uint8(i))
	}
	f.Add("10.0.0.0/24", "", int16(-1), "", "", uint16(0), "", int16(24), int16(32), uint8(3))
	f.Add("", "above", int16(24), "10.0.0.0/28", "", uint16(24), "10.0.0.1", int16(-1), int16(-1), uint8(4))
	f.Add("10.0.0.0/24", "above", int16(24), "10.0.0.9-10.0.0.1", "10.0.0.0-2001:db8::", uint16(33), "10.0.1.1", int16(30), int16(20), uint8(2))
	f.Add("255.255.255.0/24", "", int16(-1), "255.255.255.255", "255.255.255.0-255.255.255.255", uint16(20), "255.255.255.254", int16(-1), int16(-1), uint8(6))
	f.Add("2001:db8::/120", "", int16(-1), "2001:db8::10-2001:db8::20", "2001:db8::/126", uint16(64), "2001:db8::1", int16(120), int16(128), uint8(5))
	f.Fuzz(func(t *testing.T, cidr, parent string, length int16, ranges, reserved string, network uint16, gateway string, shortest, longest int16, flags uint8) {
		obj := &v1alpha1.IPPool{}
		obj.Name = "p"
		spec := &obj.Spec
		spec.CIDR, spec.IPFamily = cidr, families[int(flags)%len(families)]
		spec.PrefixLength = optionalLength(length)
		if parent != "" {
			spec.ParentRef = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: parent}
		}
		spec.Ranges, spec.Reserved = splitLines(ranges), splitLines(reserved)
		if flags&4 != 0 {
			spec.Network = &v1alpha1.PoolNetwork{PrefixLength: int32(network), Gateway: gateway, AllocateEdgeAddresses: flags&8 != 0}
		}
		spec.Allocation = &v1alpha1.PoolAllocation{MinPrefixLength: optionalLength(shortest), MaxPrefixLength: optionalLength(longest)}
		pool, errs := Pool(obj)
		for _, err := range errs {
			if err.Detail == "" || !strings.HasPrefix(err.Field, "spec.") {
				t.Errorf("%+v: %v names no field or no remedy", spec, err)
			}
		}
		if len(errs) == 0 {
			checkPool(t, obj, pool)
		}
	})
}

// checkPool fails unless every stated field can be read off the value.
func checkPool(t *testing.T, obj *v1alpha1.IPPool, pool ipam.Pool) {
	t.Helper()
	spec := &obj.Spec
	if formatBlock(pool.CIDR) != spec.CIDR {
		t.Fatalf("%+v: CIDR %v", spec, pool.CIDR)
	}
	if spec.CIDR != "" && (pool.Family != ipam.FamilyOf(pool.CIDR) || pool.Length != pool.CIDR.Bits()) {
		t.Errorf("%+v: family %s, length %d", spec, pool.Family, pool.Length)
	}
	if spec.IPFamily != "" && string(pool.Family) != string(spec.IPFamily) {
		t.Errorf("%+v: family %s", spec, pool.Family)
	}
	if spec.PrefixLength != nil && int(*spec.PrefixLength) != pool.Length {
		t.Errorf("%+v: length %d", spec, pool.Length)
	}
	if pool.IsChild() != (spec.ParentRef != nil) || spec.ParentRef != nil && pool.Home.Name != spec.ParentRef.Name {
		t.Errorf("%+v: lives in %v", spec, pool.Home)
	}
	limit := 128
	if pool.Family == ipam.IPv4 {
		limit = 32
	}
	if lowest := max(pool.CIDR.Bits(), 0); pool.Lengths.Min < lowest || pool.Lengths.Max > limit || pool.Lengths.Min > pool.Lengths.Max {
		t.Errorf("%+v: lengths %+v", spec, pool.Lengths)
	}
	if n := spec.Network; n != nil {
		if pool.Network.Length != int(n.PrefixLength) || n.PrefixLength < 0 || int(n.PrefixLength) > limit {
			t.Errorf("%+v: network %+v", spec, pool.Network)
		}
		if gateway := pool.Network.Gateway; spec.CIDR != "" && n.Gateway != "" && (gateway.String() != n.Gateway || gateway.Is4() != pool.CIDR.Addr().Is4()) {
			t.Errorf("%+v: gateway %v", spec, gateway)
		}
	}
	checkWithheld(t, spec, pool)
}

// checkWithheld computes for one address after the other whether it is withheld: all of them in a
// small pool, and in a large one those at the ends of everything.
func checkWithheld(t *testing.T, spec *v1alpha1.IPPoolSpec, pool ipam.Pool) {
	t.Helper()
	if !pool.CIDR.IsValid() {
		if pool.Withheld != nil {
			t.Errorf("%+v: withholds %v of nothing", spec, formatRanges(pool.Withheld))
		}
		return
	}
	for _, addr := range sampleAddresses(pool.CIDR, append(append([]string{gatewayIn(spec)}, spec.Ranges...), spec.Reserved...)) {
		withheld := pool.Withheld.Overlaps(netip.PrefixFrom(addr, addr.BitLen()))
		if want := expectWithheld(spec, pool.CIDR, addr); withheld != want {
			t.Fatalf("%+v: %v withheld: got %t, want %t; withheld is %v", spec.PoolSpec, addr, withheld, want, formatRanges(pool.Withheld))
		}
	}
}

// expectWithheld reports whether an address is withheld by the API's documentation.
func expectWithheld(spec *v1alpha1.IPPoolSpec, cidr netip.Prefix, addr netip.Addr) bool {
	inAny := func(texts []string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return isInRange(text, addr) })
	}
	if inAny(spec.Reserved) || len(spec.Ranges) > 0 && !inAny(spec.Ranges) {
		return true
	}
	n := spec.Network
	if n == nil {
		return false
	}
	if addr.String() == n.Gateway {
		return true
	}
	if n.AllocateEdgeAddresses || int(n.PrefixLength) >= addr.BitLen()-1 {
		return false
	}
	subnet := netip.PrefixFrom(cidr.Addr(), int(n.PrefixLength)).Masked()
	return addr == subnet.Addr() || addr.Is4() && !subnet.Contains(addr.Next())
}

// isInRange reports whether an address lies in a range as it is written.
func isInRange(text string, addr netip.Addr) bool {
	from, to, isRange := strings.Cut(text, "-")
	if block, err := netip.ParsePrefix(text); err == nil {
		return block.Contains(addr)
	}
	if !isRange {
		to = from
	}
	return netip.MustParseAddr(from).Compare(addr) <= 0 && addr.Compare(netip.MustParseAddr(to)) <= 0
}

// sampleAddresses returns the addresses of a block to look at.
func sampleAddresses(cidr netip.Prefix, written []string) []netip.Addr {
	var addrs []netip.Addr
	if cidr.Addr().BitLen()-cidr.Bits() <= 10 {
		for addr := cidr.Addr(); addr.IsValid() && cidr.Contains(addr); addr = addr.Next() {
			addrs = append(addrs, addr)
		}
		return addrs
	}
	ends := []netip.Addr{cidr.Addr(), lastOf(cidr)}
	for _, text := range written {
		if block, err := netip.ParsePrefix(text); err == nil {
			ends = append(ends, block.Addr(), lastOf(block))
		}
		for part := range strings.SplitSeq(text, "-") {
			if addr, err := netip.ParseAddr(part); err == nil {
				ends = append(ends, addr)
			}
		}
	}
	for _, end := range ends {
		for _, addr := range []netip.Addr{end.Prev(), end, end.Next()} {
			if cidr.Contains(addr) {
				addrs = append(addrs, addr)
			}
		}
	}
	return addrs
}

func gatewayIn(spec *v1alpha1.IPPoolSpec) string {
	if spec.Network == nil {
		return ""
	}
	return spec.Network.Gateway
}

func FuzzClaim(f *testing.F) {
	for i, text := range texts {
		f.Add("gold", "", "", "", text, int16(-1), uint8(i))
	}
	f.Add("", "p", "", "", "", int16(24), uint8(1))
	f.Add("", "", "zone", "a", "10.0.0.0/24", int16(24), uint8(2))
	f.Add("gold", "p", "zone", "a", "10.0.0.0/24", int16(25), uint8(0))
	f.Add("", "", "not a label", "a", "", int16(129), uint8(0))
	f.Fuzz(func(t *testing.T, class, pool, key, value, cidr string, length int16, flags uint8) {
		obj := &v1alpha1.IPClaim{}
		obj.Namespace, obj.Name = "team", "c"
		spec := &obj.Spec
		spec.ClassName, spec.CIDR, spec.PrefixLength, spec.IPFamily = class, cidr, optionalLength(length), families[int(flags)%len(families)]
		if pool != "" {
			spec.PoolRef = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: pool}
		}
		if key != "" {
			spec.PoolSelector = &v1alpha1.PoolSelector{MatchLabels: map[string]v1alpha1.LabelValue{key: v1alpha1.LabelValue(value)}}
		}
		req, errs := Claim(obj)
		for _, err := range errs {
			if err.Detail == "" || !strings.HasPrefix(err.Field, "spec") {
				t.Errorf("%+v: %v names no field or no remedy", spec, err)
			}
		}
		if len(errs) > 0 {
			return
		}
		if (class != "" && pool != "") || (key != "" && class+pool != "") {
			t.Errorf("%+v: accepted, with more than one of class, pool and selector", spec)
		}
		if formatBlock(req.Block) != cidr || req.Class != class || req.Pool.Name != pool || (req.Selects != nil) != (key != "") {
			t.Errorf("%+v: read as %+v", spec, req)
		}
		if req.Selects != nil && (!req.Selects(map[string]string{key: value}) || req.Selects(nil)) {
			t.Errorf("%+v: selects something else", spec)
		}
		if (spec.PrefixLength == nil) != (req.Length == ipam.NoLength) || spec.PrefixLength != nil && req.Length != int(*spec.PrefixLength) {
			t.Errorf("%+v: length %d", spec, req.Length)
		}
		if spec.IPFamily != "" && string(req.Family) != string(spec.IPFamily) || req.Block.IsValid() && req.Family != ipam.FamilyOf(req.Block) {
			t.Errorf("%+v: family %s", spec, req.Family)
		}
		if req.Block.IsValid() && req.Length != ipam.NoLength && req.Length != req.Block.Bits() || req.Length > req.Family.Bits() {
			t.Errorf("%+v: length %d of block %v", spec, req.Length, req.Block)
		}
	})
}

func FuzzRecord(f *testing.F) {
	for i, text := range texts {
		f.Add(text, "p", "gold", "c", "1-2-3", "jane", int64(i), uint8(i))
	}
	f.Add("10.0.0.0/24", "", "", "c", "", "", int64(0), uint8(0))
	f.Fuzz(func(t *testing.T, cidr, where, class, holder, uid, by string, until int64, flags uint8) {
		obj := &v1alpha1.IPAllocation{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a", UID: "7", ResourceVersion: "8", Finalizers: []string{v1alpha1.FinalizerHeld}},
			Spec: v1alpha1.IPAllocationSpec{
				CIDR: cidr, IPFamily: familyOfText(cidr), ClassName: class, RequestedBy: by,
				ClaimRef: v1alpha1.ClaimReference{APIGroup: "ipam.cadastre.dev", Kind: "IPClaim", Name: holder, UID: types.UID(uid)},
				Purpose:  []v1alpha1.AllocationPurpose{v1alpha1.PurposeClaim, v1alpha1.PurposePool}[flags&1],
				// The API server fills in defaults, so that none are empty.
				ReclaimPolicy: []v1alpha1.ReclaimPolicy{v1alpha1.ReclaimDelete, v1alpha1.ReclaimRetain}[flags>>1&1],
				State:         []v1alpha1.AllocationState{v1alpha1.AllocationBound, v1alpha1.AllocationRetained, v1alpha1.AllocationCooling}[flags%3],
			},
		}
		if flags&8 != 0 {
			obj.Spec.RoutingDomain = where
		} else if where != "" {
			obj.Spec.PoolRef = &v1alpha1.RecordPoolReference{Kind: v1alpha1.PoolKindIPPool, Name: where}
		}
		if flags&16 != 0 {
			obj.Annotations = map[string]string{v1alpha1.AnnotationAdopted: "true"}
		}
		if until > 0 {
			obj.Spec.ReleaseAfter = &metav1.Time{Time: time.Unix(until%4e9, 0)}
		}
		record, err := Record(obj)
		if err != nil {
			if err.Detail == "" || !strings.HasPrefix(err.Field, "spec.") {
				t.Errorf("%+v: %v names no field or no remedy", obj.Spec, err)
			}
			_, parsed := netip.ParsePrefix(cidr)
			block := record.Block
			if record.Block = (netip.Prefix{}); !reflect.DeepEqual(record, ipam.Record{Name: ipam.Name{Namespace: "team", Name: "a"}, UID: "7", Version: "8"}) || block.IsValid() != (parsed == nil) || block != block.Masked() {
				t.Errorf("%+v: it is read as %+v, %v", obj.Spec, record, block)
			}
			return
		}
		if record.Pool.Name == "" {
			t.Errorf("%+v: accepted, and lies nowhere", obj.Spec)
		}
		printed := Allocation(record)
		if !equalContent(obj, printed) {
			t.Errorf("read %+v, wrote %+v", obj, printed)
		}
		if again, err := Record(printed); err != nil || !reflect.DeepEqual(again, record) {
			t.Errorf("read %+v, and again %+v, %v", record, again, err)
		}
	})
}

// equalContent compares the content of the two objects.
func equalContent(a, b *v1alpha1.IPAllocation) bool {
	x, y := a.Spec, b.Spec
	if (x.PoolRef == nil) != (y.PoolRef == nil) || x.PoolRef != nil && *x.PoolRef != *y.PoolRef || !x.ReleaseAfter.Equal(y.ReleaseAfter) {
		return false
	}
	x.PoolRef, y.PoolRef, x.ReleaseAfter, y.ReleaseAfter = nil, nil, nil, nil
	return reflect.DeepEqual(x, y) && a.Name == b.Name && a.Namespace == b.Namespace && a.UID == b.UID && a.ResourceVersion == b.ResourceVersion &&
		slices.Equal(a.Finalizers, b.Finalizers) && a.Annotations[v1alpha1.AnnotationAdopted] == b.Annotations[v1alpha1.AnnotationAdopted]
}

// familyOfText returns the family of a text that is a block, and IPv4 of any other.
func familyOfText(text string) v1alpha1.IPFamily {
	if strings.Contains(text, ":") {
		return v1alpha1.IPv6
	}
	return v1alpha1.IPv4
}

// formatBlock returns a block as text, and an invalid block as the empty text.
func formatBlock(block netip.Prefix) string {
	if !block.IsValid() {
		return ""
	}
	return block.String()
}

// optionalLength returns a length; nil for -1.
func optionalLength(bits int16) *int32 {
	if bits == -1 {
		return nil
	}
	return new(int32(bits))
}

// splitLines splits a list, one entry a line.
func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}
