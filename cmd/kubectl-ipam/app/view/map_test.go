package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

func mapOf(t *testing.T, o *objects, bounds string) *MapReport {
	t.Helper()
	pool := o.named(t, "p")
	r, err := drawnRange(pool, bounds)
	if err != nil {
		t.Fatal(err)
	}
	return mapReport(pool, r, 80)
}

// lines returns the lines of the map: the start of each, the length of the block for which a
// character stands, and the characters.
func lines(report *MapReport) []string {
	var lines []string
	for _, line := range report.Lines {
		lines = append(lines, fmt.Sprintf("%s /%d %s", line.From, line.PrefixLength, line.Cells))
	}
	return lines
}

func TestMapCharacterShowsContent(t *testing.T) {
	o := (&objects{}).pool(build.Pool("p").CIDR("10.0.0.0/28").Network(28, "10.0.0.1").Reserved("10.0.0.6-10.0.0.7")).
		held("p", "10.0.0.2/32", ipam.StateBound).held("p", "10.0.0.3/32", ipam.StateRetained).
		held("p", "10.0.0.4/32", ipam.StateCooling).held("p", "10.0.0.6/32", ipam.StateBound).
		carved("p", "10.0.0.8/31", "child").waits(build.Claim("team", "w").Pool("p").CIDR("10.0.0.12/32"))
	for bounds, want := range map[string]string{
		"":                    "10.0.0.0 /32 xx#RC.DxPP..W..x",
		"10.0.0.5-10.0.0.8":   "10.0.0.5 /32 .DxP",
		"10.0.0.15":           "10.0.0.15 /32 x",
		"10.0.0.8/29":         "10.0.0.8 /32 PP..W..x",
		"10.0.0.12-10.0.0.12": "10.0.0.12 /32 W",
	} {
		if diff := cmp.Diff([]string{want}, lines(mapOf(t, o, bounds))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", bounds, diff)
		}
	}
}

func TestMapShowsRangesThatPoolOccupies(t *testing.T) {
	o := (&objects{}).pool(build.Pool("p").CIDR("10.0.0.0/24").Network(24, "10.0.0.1").Occupies("10.0.0.10-10.0.0.13", "10.0.0.16-10.0.0.19").Reserved("10.0.0.11")).
		held("p", "10.0.0.12/32", ipam.StateBound).held("p", "10.0.0.15/32", ipam.StateBound) // outside since an edit
	for bounds, want := range map[string]string{
		"":                   "10.0.0.10 /32 .x#.-D....",
		"10.0.0.0-10.0.0.11": "10.0.0.0 /32 ----------.x",
	} {
		if diff := cmp.Diff([]string{want}, lines(mapOf(t, o, bounds))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", bounds, diff)
		}
	}
	var legend []string
	for _, entry := range mapOf(t, o, "").Legend {
		legend = append(legend, strings.TrimSpace(entry.Character+" "+entry.Addresses))
	}
	if want := []string{". 6", "# 1", "x 1", "D 1", "-"}; !slices.Equal(legend, want) {
		t.Errorf("the legend is %q, want %q", legend, want)
	}
}

func TestLegendCountsEveryAddressOnce(t *testing.T) {
	for name, o := range map[string]*objects{
		"IPv4": (&objects{}).pool(build.Pool("p").CIDR("10.0.0.0/16").Network(16, "10.0.0.1").Reserved("10.0.4.128-10.0.6.7")).
			held("p", "10.0.4.0/24", ipam.StateBound).held("p", "10.0.6.0/28", ipam.StateRetained).carved("p", "10.0.128.0/17", "child"),
		"IPv6": (&objects{}).pool(build.Pool("p").CIDR("2001:db8::/32").Reserved("2001:db8::-2001:db8::ffff")).
			held("p", "2001:db8::ff00/120", ipam.StateBound).held("p", "2001:db8:7::/48", ipam.StateCooling),
		"all addresses": (&objects{}).pool(build.Pool("p").CIDR("::/0")).held("p", "8000::/1", ipam.StateBound),
		"one address":   (&objects{}).pool(build.Pool("p").CIDR("10.0.0.1/32")).held("p", "10.0.0.1/32", ipam.StateBound),
		"an empty pool": (&objects{}).pool(build.Pool("p").CIDR("2001:db8::/127")),
	} {
		report := mapOf(t, o, "")
		var sum, shown space.Count
		for _, entry := range report.Legend {
			sum = sum.Add(build.Count("0" + entry.Addresses))
		}
		for _, line := range report.Lines {
			shown = shown.Add(build.Count(line.Addresses))
		}
		want := space.CountOf(o.named(t, "p").CIDR)
		if sum != want || shown != want {
			t.Errorf("%s: the legend counts %s and the lines %s addresses, want %s", name, sum, shown, want)
		}
	}
}

func TestMapScaleFollowsPoolSize(t *testing.T) {
	for cidr, want := range map[string]struct {
		lines, length int
	}{
		"10.0.0.0/8":       {32, 19},
		"10.0.0.0/16":      {32, 27},
		"10.0.0.0/22":      {16, 32},
		"10.0.0.0/24":      {4, 32},
		"10.0.0.0/28":      {1, 32},
		"10.0.0.0/32":      {1, 32},
		"0.0.0.0/0":        {32, 11},
		"2001:db8::/112":   {32, 123},
		"2001:db8::/128":   {1, 128},
		"192.168.192.0/18": {32, 29},
	} {
		report := mapOf(t, (&objects{}).pool(build.Pool("p").CIDR(cidr)), "")
		if got := report.Lines[0].PrefixLength; len(report.Lines) != want.lines || got != want.length {
			t.Errorf("%s: %d lines of /%d, want %d of /%d", cidr, len(report.Lines), got, want.lines, want.length)
		}
		for text := range strings.SplitSeq(report.Draw(false), "\n") {
			if len(text) > 80 {
				t.Errorf("%s: a line is %d characters wide: %s", cidr, len(text), text)
			}
		}
	}
}

func TestMapCellShowsSeveralKinds(t *testing.T) {
	o := (&objects{}).pool(build.Pool("p").CIDR("10.0.0.0/20").Reserved("10.0.0.2-10.0.0.5")).
		held("p", "10.0.0.0/31", ipam.StateBound).held("p", "10.0.0.6/31", ipam.StateBound)
	// Each character stands for two addresses: 0-1 held, 2-5 withheld, 6-7 held.
	if got := mapOf(t, o, "").Lines[0].Cells[:6]; got != "#xx#.." {
		t.Errorf("drawn as %s", got)
	}
	o = (&objects{}).pool(build.Pool("p").CIDR("10.0.0.0/20").Reserved("10.0.0.1", "10.0.0.3")).held("p", "10.0.0.0/32", ipam.StateBound)
	if got := mapOf(t, o, "").Lines[0].Cells[:3]; got != "*+." {
		t.Errorf("drawn as %s", got)
	}
}

func TestIPv6PoolIsDrawnByRegion(t *testing.T) {
	o := (&objects{}).pool(build.Pool("p").CIDR("2001:db8::/32")).
		held("p", "2001:db8:0:1::/64", ipam.StateBound).held("p", "2001:db8:0:2::/64", ipam.StateRetained).
		held("p", "2001:db8:ffff::/48", ipam.StateBound)
	want := []string{
		"2001:db8:: /64 .",
		"2001:db8:0:1:: /64 #R",
		"2001:db8:0:3:: /64 .",
		"2001:db8:ffff:: /48 #",
	}
	if diff := cmp.Diff(want, lines(mapOf(t, o, ""))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"2001:db8:fffe:: /48 ."}, lines(mapOf(t, o, "2001:db8:fffe::/48"))); diff != "" {
		t.Errorf("of a range (-want +got):\n%s", diff)
	}
}

func TestNearbyRegionsAreMerged(t *testing.T) {
	o := (&objects{}).pool(build.Pool("p").CIDR("2001:db8::/32"))
	for i := range 100 { // 50 pairs, the two of a pair near each other
		o.held("p", fmt.Sprintf("2001:db8:%x:%x::/64", i/2*16, i%2*2), ipam.StateBound)
	}
	report := mapOf(t, o, "")
	regions := 0
	for _, line := range report.Lines {
		if line.Cells != "." {
			regions++
		}
		if strings.HasSuffix(line.From, ":2::") {
			t.Errorf("a region begins at %s, between two that are near", line.From)
		}
	}
	if regions != mostRegions {
		t.Errorf("%d regions are drawn, want %d", regions, mostRegions)
	}
}
