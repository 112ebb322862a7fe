package view

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

func TestNextBlocksFollowStrategy(t *testing.T) {
	for strategy, want := range map[v1alpha1.Strategy][]string{
		v1alpha1.StrategyFirstFit: {"10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32"},
		v1alpha1.StrategyBestFit:  {"10.0.0.1/32", "10.0.0.9/32", "10.0.0.2/32"},
		v1alpha1.StrategyWorstFit: {"10.0.0.4/32", "10.0.0.12/32", "10.0.0.2/32"},
		v1alpha1.StrategyRandom:   {"10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32"},
	} {
		o := (&objects{}).pool(build.Pool("p").CIDR("10.0.0.0/28").Strategy(strategy)).
			held("p", "10.0.0.0/32", ipam.StateBound).held("p", "10.0.0.8/32", ipam.StateCooling)
		report, err := NewFreeReport(o.named(t, "p"), FreeOptions{Length: 32, Count: 3})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, report.Blocks); diff != "" {
			t.Errorf("%s (-want +got):\n%s", strategy, diff)
		}
		if report.Available != "14" || report.LargestFreePrefix != "/30" {
			t.Errorf("%s: %s are available, the largest is a %s; want 14 and /30", strategy, report.Available, report.LargestFreePrefix)
		}
	}
}

func TestFreeReportListsFreeBlocks(t *testing.T) {
	for name, tc := range map[string]struct {
		pool    *build.PoolBuilder
		options FreeOptions
		lengths []int
		blocks  []string
	}{
		"all lengths":               {build.Pool("p").CIDR("10.0.0.0/29"), FreeOptions{Length: ipam.NoLength, Count: 1}, []int{29, 30, 31, 32}, nil},
		"allowed lengths":           {build.Pool("p").CIDR("10.0.0.0/24").Lengths(26, 28), FreeOptions{Length: ipam.NoLength, Count: 1}, []int{26, 27, 28}, nil},
		"one address":               {build.Pool("p").CIDR("10.0.0.1/32"), FreeOptions{Length: ipam.NoLength, Count: 1}, []int{32}, nil},
		"host addresses":            {build.Pool("p").CIDR("10.0.0.0/30").Network(30, "10.0.0.1"), FreeOptions{Length: ipam.NoLength, Count: 9}, nil, []string{"10.0.0.2/32"}},
		"point-to-point":            {build.Pool("p").CIDR("10.0.0.0/31").Network(31, "10.0.0.1"), FreeOptions{Length: ipam.NoLength, Count: 9}, nil, []string{"10.0.0.0/32"}},
		"IPv6, by 4":                {build.Pool("p").CIDR("2001:db8::/45").Lengths(45, 63), FreeOptions{Length: ipam.NoLength, Count: 1}, []int{45, 48, 52, 56, 60, 63}, nil},
		"everything":                {build.Pool("p").CIDR("::/0"), FreeOptions{Length: 0, Count: 2}, nil, []string{"::/0"}},
		"fewer than are asked for":  {build.Pool("p").CIDR("10.0.0.0/24"), FreeOptions{Length: 25, Count: 9}, nil, []string{"10.0.0.0/25", "10.0.0.128/25"}},
		"the rest beside a reserve": {build.Pool("p").CIDR("10.0.0.0/24").Reserved("10.0.0.0-10.0.0.200"), FreeOptions{Length: 27, Count: 9}, nil, []string{"10.0.0.224/27"}},
	} {
		report, err := NewFreeReport((&objects{}).pool(tc.pool).named(t, "p"), tc.options)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var lengths []int
		for _, length := range report.Lengths {
			lengths = append(lengths, length.PrefixLength)
		}
		if diff := cmp.Diff(tc.lengths, lengths); diff != "" {
			t.Errorf("%s: lengths (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(tc.blocks, report.Blocks); diff != "" {
			t.Errorf("%s: blocks (-want +got):\n%s", name, diff)
		}
	}
}

func TestFreeReportExplainsFullPool(t *testing.T) {
	full := (&objects{}).pool(build.Pool("p").CIDR("10.0.0.0/24")).held("p", "10.0.0.0/24", ipam.StateRetained)
	for name, tc := range map[string]struct {
		o      *objects
		length int
		code   command.ExitCode
		says   string
	}{
		"a full pool":             {full, 32, command.ExitExhausted, "no free block"},
		"no block of the length":  {(&objects{}).pool(build.Pool("p").CIDR("10.0.0.0/24")).held("p", "10.0.0.7/32", ipam.StateBound), 24, command.ExitExhausted, "largest free block is a /25"},
		"only smaller ones":       {(&objects{}).pool(build.Pool("p").CIDR("10.0.0.0/24").Lengths(24, 25)).held("p", "10.0.0.0/32", ipam.StateBound).held("p", "10.0.0.128/32", ipam.StateBound), 25, command.ExitExhausted, "its largest is a /26"},
		"a length of another one": {(&objects{}).pool(build.Pool("p").CIDR("10.0.0.0/24").Lengths(26, 28)), 32, command.ExitUsage, "hands out /26 to /28"},
		"no CIDR yet":             {(&objects{}).pool(build.Pool("p").Child("root", 24)), 32, command.ExitExhausted, "waits for a block of pool root"},
	} {
		_, err := NewFreeReport(tc.o.named(t, "p"), FreeOptions{Length: tc.length, Count: 1})
		if command.CodeOf(err) != tc.code || err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v (exit code %d), want %q (%d)", name, err, command.CodeOf(err), tc.says, tc.code)
		}
	}
}

func TestFreeLengthIsParsed(t *testing.T) {
	for text, want := range map[string]int{"": ipam.NoLength, "24": 24, "/24": 24, "0": 0, "128": 128} {
		o := FreeOptions{Length: ipam.NoLength, Count: 1}
		if err := o.parse(text); err != nil || o.Length != want {
			t.Errorf("%q: %d, %v; want %d", text, o.Length, err, want)
		}
	}
	for _, text := range []string{"x", "-1", "129", "/"} {
		if err := (&FreeOptions{Count: 1}).parse(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
