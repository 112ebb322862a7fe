package inventory

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// withholding returns a /24 with some blocks withheld.
func newPoolWithholding(name string, blocks ...string) ipam.Pool {
	cidr := netip.MustParsePrefix("10.0.0.0/24")
	var ranges []space.Range
	for _, block := range blocks {
		ranges = append(ranges, space.RangeOf(netip.MustParsePrefix(block)))
	}
	return ipam.Pool{
		Key: ipam.PoolNamed(name), CIDR: cidr, Family: ipam.IPv4, Lengths: ipam.Lengths{Min: 24, Max: 32},
		OnExhaustion: ipam.OnExhaustionWait, Withheld: space.NewRanges(cidr, ranges),
	}
}

func TestRequestThatNoPoolCanEverServeIsRefused(t *testing.T) {
	rejecting := newPoolWithholding("rejecting", "10.0.0.0/26")
	rejecting.OnExhaustion = ipam.OnExhaustionReject
	for name, tc := range map[string]struct {
		terms   ipam.Terms
		pools   []ipam.Pool
		want    []string
		missing string
		policy  string
	}{
		"nothing is withheld":               {ipam.Terms{Length: 24}, []ipam.Pool{newPoolWithholding("a")}, []string{"a"}, "", ""},
		"as large as the rest":              {ipam.Terms{Length: 25}, []ipam.Pool{newPoolWithholding("a", "10.0.0.1/32")}, []string{"a"}, "", ""},
		"larger than the rest":              {ipam.Terms{Length: 24}, []ipam.Pool{newPoolWithholding("a", "10.0.0.1/32")}, nil, "no /24 can be handed out: the ranges and reserved addresses of pool a (10.0.0.0/24) leave a /25 at most, even when it is empty: ask for a smaller block, or change them", ""},
		"another pool has it":               {ipam.Terms{Length: 24}, []ipam.Pool{newPoolWithholding("a", "10.0.0.1/32"), newPoolWithholding("b")}, []string{"b"}, "", ""},
		"the pool that has most is named":   {ipam.Terms{Length: 24}, []ipam.Pool{newPoolWithholding("a", "10.0.0.0/24"), newPoolWithholding("b", "10.0.0.1/32", "10.0.0.129/32"), newPoolWithholding("c", "10.0.0.1/32")}, nil, "pool c (10.0.0.0/24) leave a /25", ""},
		"a later pool withholds all":        {ipam.Terms{Length: 24}, []ipam.Pool{newPoolWithholding("a", "10.0.0.1/32"), newPoolWithholding("b", "10.0.0.0/24")}, nil, "pool a (10.0.0.0/24) leave a /25", ""},
		"all is withheld":                   {ipam.Terms{Length: 32}, []ipam.Pool{newPoolWithholding("a", "10.0.0.0/24")}, nil, "no /32 can be handed out: pool a (10.0.0.0/24) withholds all of its addresses: change its ranges or reserved", ""},
		"a pool that does not let it wait":  {ipam.Terms{Length: 24}, []ipam.Pool{rejecting}, nil, "", "leave a /25 at most"},
		"a class that does not let it wait": {ipam.Terms{Length: 24, OnExhaustion: ipam.OnExhaustionReject}, []ipam.Pool{newPoolWithholding("a", "10.0.0.1/32")}, nil, "", "leave a /25 at most"},
		"a class that does":                 {ipam.Terms{Length: 24, OnExhaustion: ipam.OnExhaustionWait}, []ipam.Pool{rejecting}, nil, "leave a /25 at most", ""},
		"a pool without CIDR can fit later": {ipam.Terms{Length: 24}, []ipam.Pool{{Key: ipam.PoolNamed("child")}}, []string{"child"}, "", ""},
		"no length is known yet":            {ipam.Terms{Length: ipam.NoLength}, []ipam.Pool{newPoolWithholding("a", "10.0.0.0/24")}, []string{"a"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pools, tooSmall, err := splitBySize(tc.terms, tc.pools)
			var got []string
			for _, p := range pools {
				got = append(got, p.Key.Name)
			}
			if !slices.Equal(got, tc.want) || len(got)+len(tooSmall) != len(tc.pools) {
				t.Errorf("got %v, and %v as too small; want %v", got, tooSmall, tc.want)
			}
			missing, _ := errors.AsType[*ipam.MissingError](err)
			policy, _ := errors.AsType[*ipam.PolicyError](err)
			switch {
			case tc.missing != "" && (missing == nil || missing.Reason != v1alpha1.ReasonCannotFit || !strings.Contains(missing.Message, tc.missing)):
				t.Errorf("got %v, want %s, with reason CannotFit", err, tc.missing)
			case tc.policy != "" && (policy == nil || policy.Field != "spec.prefixLength" || !strings.Contains(policy.Remedy, tc.policy)):
				t.Errorf("got %v, want spec.prefixLength: %s", err, tc.policy)
			case tc.missing+tc.policy == "" && err != nil:
				t.Error(err)
			}
		})
	}
}

func TestExhaustionPolicyPrefersClass(t *testing.T) {
	rejecting, waiting := ipam.Pool{OnExhaustion: ipam.OnExhaustionReject}, ipam.Pool{OnExhaustion: ipam.OnExhaustionWait}
	for name, c := range map[string]struct {
		terms ipam.Terms
		pools []ipam.Pool
		want  ipam.OnExhaustion
	}{
		"the class states it":      {ipam.Terms{OnExhaustion: ipam.OnExhaustionReject}, []ipam.Pool{waiting}, ipam.OnExhaustionReject},
		"the first pool states it": {ipam.Terms{}, []ipam.Pool{rejecting, waiting}, ipam.OnExhaustionReject},
		"neither states it":        {ipam.Terms{}, nil, ipam.OnExhaustionWait},
	} {
		if got := c.terms.WhenExhausted(c.pools); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
