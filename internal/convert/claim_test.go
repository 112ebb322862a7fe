package convert

import (
	"crypto/sha256"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

func TestClaim(t *testing.T) {
	nothing := ipam.Request{Claim: ipam.Name{Namespace: "team", Name: "c"}, Length: ipam.NoLength}
	pool := &v1alpha1.PoolReference{Name: "p"}
	for name, tc := range map[string]struct {
		spec        v1alpha1.IPClaimSpec
		annotations map[string]string
		want        func(*ipam.Request)
	}{
		"a claim can be empty": {want: func(*ipam.Request) {}},
		"a claim can name a class": {spec: v1alpha1.IPClaimSpec{ClassName: "gold"},
			want: func(r *ipam.Request) { r.Class = "gold" }},
		"a claim can name a pool": {spec: v1alpha1.IPClaimSpec{PoolRef: pool},
			want: func(r *ipam.Request) { r.Pool = ipam.PoolNamed("p") }},
		"a claim can state family and length": {spec: v1alpha1.IPClaimSpec{IPFamily: v1alpha1.IPv6, PrefixLength: new(int32(64))},
			want: func(r *ipam.Request) { r.Family, r.Length = ipam.IPv6, 64 }},
		"a length of 0 is one": {spec: v1alpha1.IPClaimSpec{PrefixLength: new(int32(0))},
			want: func(r *ipam.Request) { r.Length = 0 }},
		"a length may be one of IPv6 while the family is unknown": {spec: v1alpha1.IPClaimSpec{PrefixLength: new(int32(64))},
			want: func(r *ipam.Request) { r.Length = 64 }},
		"a block has a family": {spec: v1alpha1.IPClaimSpec{CIDR: "10.0.0.0/24"},
			want: func(r *ipam.Request) { r.Block, r.Family = netip.MustParsePrefix("10.0.0.0/24"), ipam.IPv4 }},
		"a claim as it is filled in": {spec: v1alpha1.IPClaimSpec{ClassName: "gold", IPFamily: v1alpha1.IPv4, PrefixLength: new(int32(24)),
			CIDR: "10.0.0.0/24", AllocationName: "c-12345678", ReclaimPolicy: v1alpha1.ReclaimRetain},
			want: func(r *ipam.Request) {
				r.Class, r.Family, r.Length, r.Block, r.Reclaim = "gold", ipam.IPv4, 24, netip.MustParsePrefix("10.0.0.0/24"), ipam.ReclaimRetain
			}},
		"a grant is for the pool that it names": {spec: v1alpha1.IPClaimSpec{PoolRef: pool},
			annotations: map[string]string{v1alpha1.AnnotationUseGranted: "p"},
			want:        func(r *ipam.Request) { r.Pool, r.Grant = ipam.PoolNamed("p"), &ipam.Grant{} }},
		"a grant for another pool is none": {spec: v1alpha1.IPClaimSpec{PoolRef: pool},
			annotations: map[string]string{v1alpha1.AnnotationUseGranted: "q"},
			want:        func(r *ipam.Request) { r.Pool = ipam.PoolNamed("p") }},
	} {
		t.Run(name, func(t *testing.T) {
			want := nothing
			tc.want(&want)
			got, errs := Claim(&v1alpha1.IPClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c", Annotations: tc.annotations}, Spec: tc.spec,
			})
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if diff := cmp.Diff(want, got, comparing); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestClaimSelectsByLabels(t *testing.T) {
	for name, tc := range map[string]struct {
		by       v1alpha1.PoolSelector
		selected map[string]string
		not      map[string]string
	}{
		"by a label": {by: v1alpha1.PoolSelector{MatchLabels: map[string]v1alpha1.LabelValue{"zone": "a"}},
			selected: map[string]string{"zone": "a", "other": "x"}, not: map[string]string{"zone": "b"}},
		"by all of several labels": {by: v1alpha1.PoolSelector{MatchLabels: map[string]v1alpha1.LabelValue{"zone": "a", "tier": "1"}},
			selected: map[string]string{"zone": "a", "tier": "1"}, not: map[string]string{"zone": "a"}},
		"by one of several values": {by: v1alpha1.PoolSelector{MatchExpressions: []v1alpha1.PoolSelectorExpression{{Key: "zone", Operator: metav1.LabelSelectorOpIn, Values: []v1alpha1.LabelValue{"a", "b"}}}},
			selected: map[string]string{"zone": "b"}, not: map[string]string{"zone": "c"}},
		"by there being a label": {by: v1alpha1.PoolSelector{MatchExpressions: []v1alpha1.PoolSelectorExpression{{Key: "zone", Operator: metav1.LabelSelectorOpExists}}},
			selected: map[string]string{"zone": ""}, not: nil},
		"by there being no label": {by: v1alpha1.PoolSelector{MatchExpressions: []v1alpha1.PoolSelectorExpression{{Key: "zone", Operator: metav1.LabelSelectorOpDoesNotExist}}},
			selected: nil, not: map[string]string{"zone": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			req, errs := Claim(&v1alpha1.IPClaim{Spec: v1alpha1.IPClaimSpec{PoolSelector: &tc.by}})
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if !req.Selects(tc.selected) || req.Selects(tc.not) {
				t.Errorf("selects %v: %t, want true; selects %v: %t, want false", tc.selected, req.Selects(tc.selected), tc.not, req.Selects(tc.not))
			}
		})
	}
}

func TestSelectorBytesCountKeysAndValues(t *testing.T) {
	by := v1alpha1.PoolSelector{
		MatchLabels:      map[string]v1alpha1.LabelValue{"zone": "a"},
		MatchExpressions: []v1alpha1.PoolSelectorExpression{{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []v1alpha1.LabelValue{"one", "second"}}},
	}
	req, errs := Claim(&v1alpha1.IPClaim{Spec: v1alpha1.IPClaimSpec{PoolSelector: &by}})
	if texts := len("zone") + len("a") + len("tier") + len("one") + len("second"); len(errs) > 0 || req.SelectorBytes != 4*64+texts {
		t.Errorf("%v: %d bytes, want %d and 64 for each of 4", errs, req.SelectorBytes, texts)
	}
}

// TestOversizedSelectorIsRefused covers a claim that is created or waits. A claim that has
// its block, as an earlier version bound it, is read without its selector.
func TestOversizedSelectorIsRefused(t *testing.T) {
	many := func(n int) []v1alpha1.LabelValue { return slices.Repeat([]v1alpha1.LabelValue{"a"}, n) }
	terms := func(n int) []v1alpha1.PoolSelectorExpression {
		return slices.Repeat([]v1alpha1.PoolSelectorExpression{{Key: "zone", Operator: metav1.LabelSelectorOpExists}}, n)
	}
	long := func(n int) string { return strings.Repeat("x", n) }
	in := func(key string, values ...v1alpha1.LabelValue) v1alpha1.PoolSelector {
		return v1alpha1.PoolSelector{MatchExpressions: []v1alpha1.PoolSelectorExpression{{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}}}
	}
	label := map[string]v1alpha1.LabelValue{"zone": "a"}
	const want = "spec.poolSelector: Invalid value: \"the selector\": may have 16 labels and expressions, of 64 values each, and keys and values as long as those of labels: make it smaller"
	var rows []messages.Row
	for name, c := range map[string]struct {
		by       v1alpha1.PoolSelector
		tooLarge bool
	}{
		"16 terms":                   {by: v1alpha1.PoolSelector{MatchLabels: label, MatchExpressions: terms(15)}},
		"17 terms":                   {by: v1alpha1.PoolSelector{MatchLabels: label, MatchExpressions: terms(16)}, tooLarge: true},
		"64 values":                  {by: in("zone", many(64)...)},
		"65 values":                  {by: in("zone", many(65)...), tooLarge: true},
		"a value of 63 characters":   {by: in("zone", v1alpha1.LabelValue(long(63)))},
		"a value of 64 characters":   {by: in("zone", v1alpha1.LabelValue(long(64))), tooLarge: true},
		"a key of 317 characters":    {by: in(long(253)+"/"+long(63), "a")},
		"a label of 317 and 63":      {by: v1alpha1.PoolSelector{MatchLabels: map[string]v1alpha1.LabelValue{long(253) + "/" + long(63): v1alpha1.LabelValue(long(63))}}},
		"a key of 318 characters":    {by: in(long(318), "a"), tooLarge: true},
		"an operator that is long":   {by: v1alpha1.PoolSelector{MatchExpressions: []v1alpha1.PoolSelectorExpression{{Key: "zone", Operator: metav1.LabelSelectorOperator(long(64))}}}, tooLarge: true},
		"a label's value that is so": {by: v1alpha1.PoolSelector{MatchLabels: map[string]v1alpha1.LabelValue{"zone": v1alpha1.LabelValue(long(64))}}, tooLarge: true},
		"a label's key that is so":   {by: v1alpha1.PoolSelector{MatchLabels: map[string]v1alpha1.LabelValue{long(318): "a"}}, tooLarge: true},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &v1alpha1.IPClaim{Spec: v1alpha1.IPClaimSpec{PoolSelector: &c.by}}
			for _, trimmed := range []bool{false, true} {
				req, errs := Claim(claim)
				if c.tooLarge != (len(errs) == 1) || c.tooLarge && errs[0].Error() != want || !c.tooLarge && len(req.Selector) != sha256.Size {
					t.Errorf("trimmed: %t: got %q and %v", trimmed, req.Selector, messagesOf(errs))
				}
				rows = append(rows, rowsOf("IPClaim", errs...)...)
				TrimSelector(claim)
			}
			if c.tooLarge == (claim.Spec.PoolSelector == &c.by) {
				t.Error("not those are trimmed that are too large")
			}
			bound := &v1alpha1.IPClaim{Spec: v1alpha1.IPClaimSpec{PoolSelector: &c.by, CIDR: "10.0.0.0/24", AllocationName: "c-1"}}
			if req, errs := Claim(bound); len(errs) > 0 || !req.Block.IsValid() || req.Selects == nil || c.tooLarge && req.Selects(map[string]string{"zone": "a"}) {
				t.Errorf("one that is bound is read as %+v: %v", req, messagesOf(errs))
			}
		})
	}
	messages.Golden(t, rows)
	longest := v1alpha1.PoolSelector{MatchExpressions: []v1alpha1.PoolSelectorExpression{{Key: "zone", Operator: metav1.LabelSelectorOperator(long(63))}}}
	if _, errs := Claim(&v1alpha1.IPClaim{Spec: v1alpha1.IPClaimSpec{PoolSelector: &longest}}); len(errs) != 1 || errs[0].Error() == want {
		t.Errorf("an operator of 63 characters counts as too large: %v", messagesOf(errs))
	}
}

func TestClaimRefuses(t *testing.T) {
	const both = `spec: Invalid value: "className, poolRef, poolSelector": exclude each other: keep one of them`
	const noName = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
	pool := &v1alpha1.PoolReference{Name: "p"}
	zone := &v1alpha1.PoolSelector{MatchLabels: map[string]v1alpha1.LabelValue{"zone": "a"}}
	var rows []messages.Row
	for name, tc := range map[string]struct {
		spec v1alpha1.IPClaimSpec
		want []string
	}{
		"a class and a pool":                  {v1alpha1.IPClaimSpec{ClassName: "gold", PoolRef: pool}, []string{both}},
		"a class and a selector":              {v1alpha1.IPClaimSpec{ClassName: "gold", PoolSelector: zone}, []string{both}},
		"a pool and a selector":               {v1alpha1.IPClaimSpec{PoolRef: pool, PoolSelector: zone}, []string{both}},
		"all three":                           {v1alpha1.IPClaimSpec{ClassName: "gold", PoolRef: pool, PoolSelector: zone}, []string{both}},
		"a class that cannot be named so":     {v1alpha1.IPClaimSpec{ClassName: "Gold"}, []string{`spec.className: Invalid value: "Gold": ` + noName}},
		"a pool that cannot be named so":      {v1alpha1.IPClaimSpec{PoolRef: &v1alpha1.PoolReference{Name: "P"}}, []string{`spec.poolRef.name: Invalid value: "P": ` + noName}},
		"a selector of everything":            {v1alpha1.IPClaimSpec{PoolSelector: &v1alpha1.PoolSelector{}}, []string{`spec.poolSelector: Invalid value: "{}": selects every pool: name at least one label`}},
		"an allocationName without a CIDR":    {v1alpha1.IPClaimSpec{AllocationName: "mine"}, []string{"spec.allocationName: Forbidden: is filled in together with cidr: leave it out"}},
		"a CIDR that is none":                 {v1alpha1.IPClaimSpec{CIDR: "10.0.0.1/24"}, []string{`spec.cidr: Invalid value: "10.0.0.1/24": has host bits set: did you mean "10.0.0.0/24"?`}},
		"a CIDR of another length":            {v1alpha1.IPClaimSpec{CIDR: "10.0.0.0/24", PrefixLength: new(int32(25))}, []string{"spec.prefixLength: Invalid value: 25: cidr asks for a /24: remove one of them"}},
		"a CIDR of another family":            {v1alpha1.IPClaimSpec{CIDR: "10.0.0.0/24", IPFamily: v1alpha1.IPv6}, []string{`spec.ipFamily: Invalid value: "IPv6": the CIDR is IPv4: remove ipFamily, it is derived`}},
		"a length of 33 in IPv4":              {v1alpha1.IPClaimSpec{IPFamily: v1alpha1.IPv4, PrefixLength: new(int32(33))}, []string{"spec.prefixLength: Invalid value: 33: must be between 0 and 32"}},
		"a length of 129":                     {v1alpha1.IPClaimSpec{PrefixLength: new(int32(129))}, []string{"spec.prefixLength: Invalid value: 129: must be between 0 and 128"}},
		"a negative length":                   {v1alpha1.IPClaimSpec{PrefixLength: new(int32(-1))}, []string{"spec.prefixLength: Invalid value: -1: must be between 0 and 128"}},
		"two selectors and a CIDR, all of it": {v1alpha1.IPClaimSpec{ClassName: "gold", PoolRef: pool, CIDR: "here"}, []string{both, `spec.cidr: Invalid value: "here": is not a CIDR: write an address and a prefix length, such as 10.0.0.0/24 or 2001:db8::/64`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs := Claim(&v1alpha1.IPClaim{Spec: tc.spec})
			rows = append(rows, rowsOf("IPClaim", errs...)...)
			if diff := cmp.Diff(tc.want, messagesOf(errs), cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	messages.Golden(t, rows)
}

func TestClaimRefusesInvalidSelectors(t *testing.T) {
	var rows []messages.Row
	for name, by := range map[string]v1alpha1.PoolSelectorExpression{
		"an operator that there is not": {Key: "zone", Operator: "Like", Values: []v1alpha1.LabelValue{"a"}},
		"In without values":             {Key: "zone", Operator: metav1.LabelSelectorOpIn},
		"Exists with values":            {Key: "zone", Operator: metav1.LabelSelectorOpExists, Values: []v1alpha1.LabelValue{"a"}},
		"a key that is no label":        {Key: "not a label", Operator: metav1.LabelSelectorOpExists},
		"a value that is no label":      {Key: "zone", Operator: metav1.LabelSelectorOpIn, Values: []v1alpha1.LabelValue{"not a value"}},
	} {
		t.Run(name, func(t *testing.T) {
			req, errs := Claim(&v1alpha1.IPClaim{Spec: v1alpha1.IPClaimSpec{PoolSelector: &v1alpha1.PoolSelector{MatchExpressions: []v1alpha1.PoolSelectorExpression{by}}}})
			rows = append(rows, rowsOf("IPClaim", errs...)...)
			if len(errs) != 1 || errs[0].Field != "spec.poolSelector" || errs[0].Detail == "" || req.Selects != nil {
				t.Errorf("got %v and a selector: %t; want spec.poolSelector named, and none", messagesOf(errs), req.Selects != nil)
			}
		})
	}
	messages.Golden(t, rows)
}
