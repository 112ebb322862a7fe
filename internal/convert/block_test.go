package convert

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

// messagesOf returns the messages of errors, one line an error.
func messagesOf(errs field.ErrorList) []string {
	var lines []string
	for _, err := range errs {
		lines = append(lines, err.Error())
	}
	return lines
}

// messageOf returns the message of an error, or nothing.
func messageOf(err *field.Error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// comparing compares addresses and blocks by value.
var comparing = cmp.Options{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

func TestBlock(t *testing.T) {
	const garbage = "is not a CIDR: write an address and a prefix length, such as 10.0.0.0/24 or 2001:db8::/64"
	var rows []messages.Row
	for name, tc := range map[string]struct{ text, refused string }{
		"an IPv4 block is read":                           {text: "10.0.0.0/24"},
		"a single IPv4 address is read":                   {text: "10.0.0.1/32"},
		"all of IPv4 is read":                             {text: "0.0.0.0/0"},
		"the last IPv4 address is read":                   {text: "255.255.255.255/32"},
		"an IPv6 block is read":                           {text: "2001:db8::/32"},
		"a single IPv6 address is read":                   {text: "2001:db8::1/128"},
		"all of IPv6 is read":                             {text: "::/0"},
		"one zero group is not shortened":                 {text: "2001:db8:0:1:1:1:1:0/127"},
		"nothing is not a block":                          {text: "", refused: garbage},
		"a word is not a block":                           {text: "lab", refused: garbage},
		"an address without a length is not a block":      {text: "10.0.0.1", refused: garbage},
		"a length of 33 is not one of IPv4":               {text: "10.0.0.0/33", refused: garbage},
		"a length of 129 is not one of IPv6":              {text: "2001:db8::/129", refused: garbage},
		"a negative length is none":                       {text: "10.0.0.0/-1", refused: garbage},
		"a length with a sign is none":                    {text: "10.0.0.0/+8", refused: garbage},
		"a length with leading zeros is none":             {text: "10.0.0.0/08", refused: garbage},
		"a netmask is not a length":                       {text: "10.0.0.0/255.0.0.0", refused: garbage},
		"leading zeros are refused, some read them octal": {text: "010.0.0.0/8", refused: garbage},
		"three numbers are not an address":                {text: "10.0.0/8", refused: garbage},
		"space before is refused":                         {text: " 10.0.0.0/8", refused: garbage},
		"space behind is refused":                         {text: "10.0.0.0/8 ", refused: garbage},
		"a zone is refused":                               {text: "fe80::%eth0/64", refused: garbage},
		"two lengths are refused":                         {text: "10.0.0.0/8/8", refused: garbage},
		"IPv4 host bits are named":                        {text: "10.0.0.1/24", refused: `has host bits set: did you mean "10.0.0.0/24"?`},
		"IPv6 host bits are named":                        {text: "2001:db8::1/64", refused: `has host bits set: did you mean "2001:db8::/64"?`},
		"host bits are named before spelling":             {text: "2001:DB8::1/64", refused: `has host bits set: did you mean "2001:db8::/64"?`},
		"upper case is named":                             {text: "2001:DB8::/32", refused: `is not in canonical form: write "2001:db8::/32"`},
		"leading zeros of a group are named":              {text: "2001:0db8::/32", refused: `is not in canonical form: write "2001:db8::/32"`},
		"zeros that are spelled out are named":            {text: "2001:db8:0:0:0:0:0:0/32", refused: `is not in canonical form: write "2001:db8::/32"`},
		"the shorter run of zeros shortened is named":     {text: "1::1:0:0:0:0/64", refused: `is not in canonical form: write "1:0:0:1::/64"`},
		"an IPv4 tail in IPv6 is named":                   {text: "64:ff9b::192.0.2.0/120", refused: `is not in canonical form: write "64:ff9b::c000:200/120"`},
		"IPv4-mapped IPv6 is refused":                     {text: "::ffff:10.0.0.0/104", refused: "is an IPv4-mapped IPv6 block: write it as IPv4"},
		"IPv4-mapped IPv6 in hexadecimal is refused":      {text: "::ffff:a00:0/104", refused: "is an IPv4-mapped IPv6 block: write it as IPv4"},
	} {
		t.Run(name, func(t *testing.T) {
			block, err := Block(field.NewPath("spec", "cidr"), tc.text)
			rows = append(rows, rowsOf("IPClaim", err)...)
			if tc.refused != "" {
				want := field.Invalid(field.NewPath("spec", "cidr"), tc.text, tc.refused).Error()
				if messageOf(err) != want || block.IsValid() {
					t.Errorf("Block(%q) = %v, %v; want no block, %s", tc.text, block, err, want)
				}
				return
			}
			if err != nil || block.String() != tc.text {
				t.Errorf("Block(%q) = %v, %v; want the same, no error", tc.text, block, err)
			}
		})
	}
	messages.Golden(t, rows)
}

func TestAddr(t *testing.T) {
	const garbage = "is not an IP address: write one such as 10.0.0.1 or 2001:db8::1"
	var rows []messages.Row
	for name, tc := range map[string]struct{ text, refused string }{
		"an IPv4 address is read":              {text: "10.0.0.1"},
		"the first IPv4 address is read":       {text: "0.0.0.0"},
		"the last IPv4 address is read":        {text: "255.255.255.255"},
		"an IPv6 address is read":              {text: "2001:db8::1"},
		"the first IPv6 address is read":       {text: "::"},
		"nothing is not an address":            {text: "", refused: garbage},
		"a word is not an address":             {text: "gateway", refused: garbage},
		"a block is not an address":            {text: "10.0.0.1/24", refused: garbage},
		"256 is not a byte":                    {text: "10.0.0.256", refused: garbage},
		"leading zeros are refused":            {text: "10.0.0.01", refused: garbage},
		"a zone is refused":                    {text: "fe80::1%eth0", refused: garbage},
		"a port is refused":                    {text: "10.0.0.1:53", refused: garbage},
		"brackets are refused":                 {text: "[2001:db8::1]", refused: garbage},
		"space is refused":                     {text: "10.0.0.1 ", refused: garbage},
		"upper case is named":                  {text: "2001:DB8::1", refused: `is not in canonical form: write "2001:db8::1"`},
		"zeros that are spelled out are named": {text: "2001:db8:0:0:0:0:0:1", refused: `is not in canonical form: write "2001:db8::1"`},
		"IPv4-mapped IPv6 is refused":          {text: "::ffff:10.0.0.1", refused: "is an IPv4-mapped IPv6 address: write it as IPv4"},
	} {
		t.Run(name, func(t *testing.T) {
			addr, err := Addr(field.NewPath("spec", "network", "gateway"), tc.text)
			rows = append(rows, rowsOf("IPPool", err)...)
			if tc.refused != "" {
				want := field.Invalid(field.NewPath("spec", "network", "gateway"), tc.text, tc.refused).Error()
				if messageOf(err) != want || addr.IsValid() {
					t.Errorf("Addr(%q) = %v, %v; want no address, %s", tc.text, addr, err, want)
				}
				return
			}
			if err != nil || addr.String() != tc.text {
				t.Errorf("Addr(%q) = %v, %v; want the same, no error", tc.text, addr, err)
			}
		})
	}
	messages.Golden(t, rows)
}

func TestFamilyOf(t *testing.T) {
	four, six := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")
	for name, tc := range map[string]struct {
		stated  ipam.Family
		block   netip.Prefix
		want    ipam.Family
		refused string
	}{
		"nothing stated and no block leave it open": {},
		"the stated one is used without a block":    {stated: ipam.IPv6, want: ipam.IPv6},
		"it is derived from an IPv4 block":          {block: four, want: ipam.IPv4},
		"it is derived from an IPv6 block":          {block: six, want: ipam.IPv6},
		"it may be stated beside the block":         {stated: ipam.IPv4, block: four, want: ipam.IPv4},
		"it may not contradict an IPv4 block": {stated: ipam.IPv6, block: four, want: ipam.IPv4,
			refused: `ipFamily: Invalid value: "IPv6": the CIDR is IPv4: remove ipFamily, it is derived`},
		"it may not contradict an IPv6 block": {stated: ipam.IPv4, block: six, want: ipam.IPv6,
			refused: `ipFamily: Invalid value: "IPv4": the CIDR is IPv6: remove ipFamily, it is derived`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := familyOf(field.NewPath("ipFamily"), tc.stated, tc.block)
			if got != tc.want || messageOf(err) != tc.refused {
				t.Errorf("familyOf(%q, %v) = %q, %q; want %q, %q", tc.stated, tc.block, got, messageOf(err), tc.want, tc.refused)
			}
		})
	}
}

func TestLength(t *testing.T) {
	for name, tc := range map[string]struct {
		bits    *int32
		family  ipam.Family
		want    int
		refused string
	}{
		"none is none":                            {family: ipam.IPv4, want: ipam.NoLength},
		"0 is the shortest":                       {bits: new(int32(0)), family: ipam.IPv4, want: 0},
		"32 is the longest of IPv4":               {bits: new(int32(32)), family: ipam.IPv4, want: 32},
		"128 is the longest of IPv6":              {bits: new(int32(128)), family: ipam.IPv6, want: 128},
		"128 is the longest of an unknown family": {bits: new(int32(128)), want: 128},
		"33 is too long for IPv4": {bits: new(int32(33)), family: ipam.IPv4, want: ipam.NoLength,
			refused: "prefixLength: Invalid value: 33: must be between 0 and 32"},
		"129 is too long for IPv6": {bits: new(int32(129)), family: ipam.IPv6, want: ipam.NoLength,
			refused: "prefixLength: Invalid value: 129: must be between 0 and 128"},
		"less than 0 is refused": {bits: new(int32(-1)), family: ipam.IPv6, want: ipam.NoLength,
			refused: "prefixLength: Invalid value: -1: must be between 0 and 128"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := length(field.NewPath("prefixLength"), tc.bits, tc.family)
			if got != tc.want || messageOf(err) != tc.refused {
				t.Errorf("got %d, %q; want %d, %q", got, messageOf(err), tc.want, tc.refused)
			}
		})
	}
}
