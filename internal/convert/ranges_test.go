package convert

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

func TestReadSpan(t *testing.T) {
	four, six := netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("2001:db8::/120")
	const reversed = `ends before it begins: did you mean "10.0.0.10-10.0.0.20"?`
	const outside, noAddress = "is not inside the pool's CIDR 10.0.0.0/24: remove it, or correct it", "is not an IP address: write one such as 10.0.0.1 or 2001:db8::1"
	var rows []messages.Row
	for name, tc := range map[string]struct {
		text           string
		cidr           netip.Prefix
		from, to       string
		refused, value string
	}{
		"a range is read":                      {text: "10.0.0.10-10.0.0.20", cidr: four, from: "10.0.0.10", to: "10.0.0.20"},
		"a range of one address is read":       {text: "10.0.0.10-10.0.0.10", cidr: four, from: "10.0.0.10", to: "10.0.0.10"},
		"all of the pool is read":              {text: "10.0.0.0-10.0.0.255", cidr: four, from: "10.0.0.0", to: "10.0.0.255"},
		"a CIDR is read":                       {text: "10.0.0.16/28", cidr: four, from: "10.0.0.16", to: "10.0.0.31"},
		"the pool's own CIDR is read":          {text: "10.0.0.0/24", cidr: four, from: "10.0.0.0", to: "10.0.0.255"},
		"an address is read":                   {text: "10.0.0.7", cidr: four, from: "10.0.0.7", to: "10.0.0.7"},
		"an IPv6 range is read":                {text: "2001:db8::1-2001:db8::f", cidr: six, from: "2001:db8::1", to: "2001:db8::f"},
		"an IPv6 CIDR is read":                 {text: "2001:db8::80/121", cidr: six, from: "2001:db8::80", to: "2001:db8::ff"},
		"an IPv6 address is read":              {text: "2001:db8::7", cidr: six, from: "2001:db8::7", to: "2001:db8::7"},
		"anything goes while no CIDR is known": {text: "192.0.2.1-192.0.2.9", from: "192.0.2.1", to: "192.0.2.9"},

		"a reversed range is refused":                        {text: "10.0.0.20-10.0.0.10", cidr: four, refused: reversed},
		"a reversed range is refused while no CIDR is known": {text: "10.0.0.20-10.0.0.10", refused: reversed},
		"a range that begins before the pool is refused":     {text: "9.255.255.255-10.0.0.1", cidr: four, refused: outside},
		"a range that ends behind the pool is refused":       {text: "10.0.0.1-10.0.1.0", cidr: four, refused: outside},
		"a CIDR around the pool is refused":                  {text: "10.0.0.0/23", cidr: four, refused: outside},
		"an address outside of the pool is refused":          {text: "10.0.1.0", cidr: four, refused: outside},
		"a range of the other family is refused":             {text: "2001:db8::1-2001:db8::2", cidr: four, refused: outside},
		"a range of both families is refused":                {text: "10.0.0.1-2001:db8::2", cidr: four, refused: "mixes IPv4 and IPv6: both ends must be of the pool's family"},
		"a CIDR with host bits is refused":                   {text: "10.0.0.1/28", cidr: four, refused: `has host bits set: did you mean "10.0.0.0/28"?`},
		"a beginning that is no address is refused":          {text: "first-10.0.0.1", cidr: four, value: "first", refused: noAddress},
		"an end that is no address is refused":               {text: "10.0.0.1-9", cidr: four, value: "9", refused: noAddress},
		"a range of CIDRs is refused":                        {text: "10.0.0.0/28-10.0.0.16/28", cidr: four, value: "10.0.0.0/28", refused: noAddress},
		"a range with spaces is refused":                     {text: "10.0.0.1 - 10.0.0.2", cidr: four, value: "10.0.0.1 ", refused: noAddress},
		"nothing is refused":                                 {text: "", cidr: four, refused: noAddress},
		"an address that is not canonical is refused":        {text: "2001:db8::0", cidr: six, refused: `is not in canonical form: write "2001:db8::"`},
	} {
		t.Run(name, func(t *testing.T) {
			path := field.NewPath("spec", "ranges").Index(0)
			got, err := readSpan(path, tc.text, tc.cidr)
			rows = append(rows, rowsOf("IPPool", err)...)
			if tc.refused != "" {
				if tc.value == "" {
					tc.value = tc.text
				}
				want := field.Invalid(path, tc.value, tc.refused).Error()
				if messageOf(err) != want {
					t.Errorf("readSpan(%q, %v): got %q, want %q", tc.text, tc.cidr, messageOf(err), want)
				}
				return
			}
			want := space.Range{From: netip.MustParseAddr(tc.from), To: netip.MustParseAddr(tc.to)}
			if err != nil || got != want {
				t.Errorf("readSpan(%q, %v) = %v, %v; want %v, no error", tc.text, tc.cidr, got, err, want)
			}
		})
	}
	messages.Golden(t, rows)
}

func TestSpanErrorsNameEachInvalidEntry(t *testing.T) {
	got, errs := spans(field.NewPath("spec", "reserved"), []string{"10.0.0.1", "here", "10.0.0.9-10.0.0.3", "10.0.0.8/30"}, netip.MustParsePrefix("10.0.0.0/24"))
	want := []string{
		`spec.reserved[1]: Invalid value: "here": is not an IP address: write one such as 10.0.0.1 or 2001:db8::1`,
		`spec.reserved[2]: Invalid value: "10.0.0.9-10.0.0.3": ends before it begins: did you mean "10.0.0.3-10.0.0.9"?`,
	}
	if diff := cmp.Diff(want, messagesOf(errs)); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	if len(got) != 2 || got[1].To != netip.MustParseAddr("10.0.0.11") {
		t.Errorf("got the spans %v, want the first and the last", got)
	}
}

func TestOutside(t *testing.T) {
	for name, tc := range map[string]struct {
		cidr   string
		inside []string
		want   []string
	}{
		"nothing inside leaves everything":                       {cidr: "10.0.0.0/24", want: []string{"10.0.0.0-10.0.0.255"}},
		"everything inside leaves nothing":                       {cidr: "10.0.0.0/24", inside: []string{"10.0.0.0/24"}},
		"two halves leave nothing":                               {cidr: "10.0.0.0/24", inside: []string{"10.0.0.128/25", "10.0.0.0/25"}},
		"a hole leaves both sides":                               {cidr: "10.0.0.0/29", inside: []string{"10.0.0.2-10.0.0.4"}, want: []string{"10.0.0.0-10.0.0.1", "10.0.0.5-10.0.0.7"}},
		"overlapping ranges count once":                          {cidr: "10.0.0.0/29", inside: []string{"10.0.0.0-10.0.0.4", "10.0.0.2-10.0.0.3", "10.0.0.3-10.0.0.5"}, want: []string{"10.0.0.6-10.0.0.7"}},
		"ranges side by side leave nothing between":              {cidr: "10.0.0.0/30", inside: []string{"10.0.0.1", "10.0.0.2"}, want: []string{"10.0.0.0-10.0.0.0", "10.0.0.3-10.0.0.3"}},
		"the last IPv4 address has nothing behind":               {cidr: "255.255.255.252/30", inside: []string{"255.255.255.254-255.255.255.255"}, want: []string{"255.255.255.252-255.255.255.253"}},
		"all of IPv4 leaves nothing":                             {cidr: "0.0.0.0/0", inside: []string{"0.0.0.0/0"}},
		"the last IPv6 address has nothing behind":               {cidr: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127", inside: []string{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}, want: []string{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe-ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"}},
		"one address of all of IPv6 leaves the rest of its side": {cidr: "::/0", inside: []string{"::/1", "8000::/2"}, want: []string{"c000::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}},
	} {
		t.Run(name, func(t *testing.T) {
			cidr := netip.MustParsePrefix(tc.cidr)
			inside, errs := spans(field.NewPath("ranges"), tc.inside, cidr)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			var got []string
			for _, p := range Outside(cidr, inside) {
				got = append(got, p.From.String()+"-"+p.To.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Outside(%v, %v) (-want +got):\n%s", cidr, tc.inside, diff)
			}
		})
	}
}

func TestLastOf(t *testing.T) {
	for block, want := range map[string]string{
		"10.0.0.0/24":     "10.0.0.255",
		"10.0.0.1/32":     "10.0.0.1",
		"10.0.0.0/31":     "10.0.0.1",
		"0.0.0.0/0":       "255.255.255.255",
		"2001:db8::/32":   "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
		"2001:db8::1/128": "2001:db8::1",
		"::/0":            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
	} {
		if got := lastOf(netip.MustParsePrefix(block)); got.String() != want {
			t.Errorf("lastOf(%s) = %v, want %s", block, got, want)
		}
	}
}

// addressAt returns the address at an offset from the first of 256.
func addressAt(first netip.Addr, offset int) netip.Addr {
	bytes := first.AsSlice()
	bytes[len(bytes)-1] = byte(offset)
	addr, _ := netip.AddrFromSlice(bytes)
	return addr
}

// randomEntries writes random ranges, blocks and addresses among 256.
func randomEntries(random *rand.Rand, first netip.Addr, count int) (texts []string) {
	for range count {
		from := random.IntN(256)
		to := from + random.IntN(min(256-from, 1+random.IntN(64)))
		text := fmt.Sprintf("%v-%v", addressAt(first, from), addressAt(first, to))
		switch random.IntN(3) {
		case 0:
			text = addressAt(first, from).String()
		case 1:
			text = netip.PrefixFrom(addressAt(first, from), first.BitLen()-random.IntN(9)).Masked().String()
		}
		texts = append(texts, text)
	}
	return texts
}

func TestPoolWithheldSpaceMatchesTwin(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	firsts := []string{"10.0.0.0", "0.0.0.0", "255.255.255.0", "2001:db8::", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00"}
	for step := range 6000 {
		first := netip.MustParseAddr(firsts[step%len(firsts)])
		obj := build.Pool("p").CIDR(netip.PrefixFrom(first, first.BitLen()-8).String()).Obj()
		obj.Spec.Ranges, obj.Spec.Reserved = randomEntries(random, first, random.IntN(5)), randomEntries(random, first, random.IntN(5))
		if random.IntN(2) == 0 { // a pool of host addresses, as large as its subnet
			obj.Spec.Network = &v1alpha1.PoolNetwork{
				PrefixLength: int32(first.BitLen() - 8), Gateway: addressAt(first, random.IntN(256)).String(), AllocateEdgeAddresses: random.IntN(2) == 0,
			}
		}
		pool, errs := Pool(obj)
		if len(errs) > 0 {
			t.Fatalf("step %d: %+v: %v", step, obj.Spec, errs)
		}
		checkWithheld(t, &obj.Spec, pool)
	}
}
