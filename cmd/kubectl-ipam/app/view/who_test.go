package view

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// rowsOf returns the rows of a report: pool, block and state.
func rowsOf(report *WhoReport) []string {
	var rows []string
	for i := range report.Places {
		place := &report.Places[i]
		pool := "-"
		if place.Pool != nil {
			pool = place.Pool.Name
		}
		for _, row := range place.rows(report.now) {
			rows = append(rows, fmt.Sprintf("%s: %s %s", pool, row.block, row.state.Text))
		}
	}
	return rows
}

func TestWhoReportShowsHolders(t *testing.T) {
	o := (&objects{}).
		pool(build.Pool("root").CIDR("10.0.0.0/8").Reserved("10.9.0.0/16")).
		pool(build.Pool("child").Child("root", 24)).
		pool(build.Pool("lab").CIDR("10.0.0.0/16").Domain("lab").Network(16, "10.0.0.1").Reserved("10.0.0.2").Ranges("10.0.0.0-10.0.1.255")).
		pool(build.Pool("six").CIDR("2001:db8::/32")).
		pool(build.Pool("all").CIDR("::/0").Domain("all")).
		carved("root", "10.0.0.0/24", "child").
		held("child", "10.0.0.2/32", ipam.StateBound).
		held("child", "10.0.0.4/30", ipam.StateRetained).
		held("lab", "10.0.0.2/32", ipam.StateBound).
		held("six", "2001:db8::/64", ipam.StateCooling).
		held("gone", "172.16.0.0/24", ipam.StateBound).
		held("root", "10.1.0.0/16", ipam.StateBound).
		held("root", "10.1.2.0/24", ipam.StateBound) // overlaps
	for asked, want := range map[string][]string{
		"10.0.0.2/32":      {"root: 10.0.0.0/24 Carved", "child: 10.0.0.2/32 Bound", "lab: 10.0.0.2/32 Bound, drained", "lab: 10.0.0.2 Withheld: reserved"},
		"10.0.0.3/32":      {"root: 10.0.0.0/24 Carved", "child: 10.0.0.3/32 Free", "lab: 10.0.0.3/32 Free"},
		"10.0.0.1/32":      {"root: 10.0.0.0/24 Carved", "child: 10.0.0.1/32 Free", "lab: 10.0.0.1 Withheld: gateway"},
		"10.0.3.0/32":      {"root: 10.0.3.0/32 Free", "lab: 10.0.2.0-10.0.255.255 Withheld: outside of ranges"},
		"10.0.255.255/32":  {"root: 10.0.255.255/32 Free", "lab: 10.0.2.0-10.0.255.255 Withheld: outside of ranges", "lab: 10.0.255.255 Withheld: broadcast address"},
		"10.9.1.1/32":      {"root: 10.9.0.0/16 Withheld: reserved"},
		"10.1.2.3/32":      {"root: 10.1.0.0/16 Bound", "root: 10.1.2.0/24 Bound"},
		"2001:db8::1/128":  {"all: 2001:db8::1/128 Free", "six: 2001:db8::/64 Cooling"},
		"172.16.0.0/32":    {"gone: 172.16.0.0/24 Bound"},
		"8.8.8.8/32":       nil,
		"10.0.0.0/28":      {"root: 10.0.0.0/24 Carved", "child: 10.0.0.2/32 Bound", "child: 10.0.0.4/30 Retained", "child: 11 addresses Free", "lab: 10.0.0.0 Withheld: network address", "lab: 10.0.0.1 Withheld: gateway", "lab: 10.0.0.2/32 Bound, drained", "lab: 10.0.0.2 Withheld: reserved", "lab: 13 addresses Free"},
		"172.0.0.0/8":      {"gone: 172.16.0.0/24 Bound"},
		"2001:db8::/32":    {"all: 2^96 addresses Free", "six: 2001:db8::/64 Cooling", "six: 7.9e+28 addresses Free"},
		"ffff::/128":       {"all: ffff::/128 Free"},
		"2001:db8:1::/128": {"all: 2001:db8:1::/128 Free", "six: 2001:db8:1::/128 Free"},
	} {
		got := rowsOf(NewWhoReport(o.build(), netip.MustParsePrefix(asked), math.MaxInt))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", asked, diff)
		}
	}
}

// TestWhoReportShowsPoolsThatOccupyRanges has two pools in one subnet.
func TestWhoReportShowsPoolsThatOccupyRanges(t *testing.T) {
	o := (&objects{}).
		pool(build.Pool("root").CIDR("10.0.0.0/24")).
		pool(build.Pool("lab").CIDR("10.0.0.0/24").Domain("lab").Network(24, "10.0.0.1").Occupies("10.0.0.40-10.0.0.43", "10.0.0.48").Reserved("10.0.0.41", "10.0.0.44-10.0.0.47")).
		occupied("root", "a", "10.0.0.0/24", "10.0.0.10-10.0.0.19", "10.0.0.10/31", "10.0.0.12/30", "10.0.0.16/30").
		occupied("root", "b", "10.0.0.0/24", "10.0.0.32/30", "10.0.0.32/30").
		held("a", "10.0.0.13/32", ipam.StateBound)
	for asked, want := range map[string][]string{
		"10.0.0.13/32": {"root: 10.0.0.12/30 Carved", "a: 10.0.0.13/32 Bound"},
		"10.0.0.19/32": {"root: 10.0.0.16/30 Carved", "a: 10.0.0.19/32 Free"},
		"10.0.0.33/32": {"root: 10.0.0.32/30 Carved", "b: 10.0.0.33/32 Free"},
		"10.0.0.20/32": {"root: 10.0.0.20/32 Free"},
		"10.0.0.1/32":  {"root: 10.0.0.1/32 Free"}, // the gateway, which lab does not hold
		"10.0.0.40/29": {"root: 8 addresses Free", "lab: 10.0.0.41 Withheld: reserved", "lab: 3 addresses Free"},
		"10.0.0.16/28": {"root: 10.0.0.16/30 Carved", "root: 12 addresses Free", "a: 4 addresses Free"},
	} {
		report := NewWhoReport(o.build(), netip.MustParsePrefix(asked), math.MaxInt)
		if diff := cmp.Diff(want, rowsOf(report)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", asked, diff)
		}
		for _, place := range report.Places {
			if len(place.rows(report.now)) == 0 {
				t.Errorf("%s: pool %s is listed, and has none of the addresses", asked, place.Pool.Name)
			}
		}
	}
}

// TestWhoReportShowsWhatRootPoolOccupiedBeforeEdit has a record of a pool with more than the pool states.
func TestWhoReportShowsWhatRootPoolOccupiedBeforeEdit(t *testing.T) {
	o := (&objects{}).pool(build.Pool("p").CIDR("10.0.0.0/24").Occupies("10.0.0.16/29"))
	for pool, block := range map[string]string{"p": "10.0.0.16/28", "gone": "10.9.0.0/24"} {
		o.Allocations = append(o.Allocations, convert.Allocation(ipam.Record{
			Pool: ipam.DomainNamed("default", ipam.IPv4), Block: netip.MustParsePrefix(block), Holder: convert.HolderOfPool(ipam.PoolNamed(pool)),
			Purpose: ipam.PurposePool, State: ipam.StateBound,
		}))
	}
	for asked, want := range map[string][]string{
		"10.0.0.17/32": {"p: 10.0.0.17/32 Free"},
		"10.0.0.25/32": {"-: 10.0.0.16/28 Carved"},
		"10.0.0.0/24":  {"p: 8 addresses Free"},
		"10.0.0.40/32": nil,
		"10.9.0.1/32":  {"-: 10.9.0.0/24 Carved"},
	} {
		if diff := cmp.Diff(want, rowsOf(NewWhoReport(o.build(), netip.MustParsePrefix(asked), math.MaxInt))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", asked, diff)
		}
	}
}

func TestWhoReportLimitsBlocks(t *testing.T) {
	o := (&objects{}).pool(build.Pool("p").CIDR("10.0.0.0/24")).pool(build.Pool("q").CIDR("10.0.1.0/24").Reserved("10.0.1.255"))
	for i := range 30 {
		o.held("p", fmt.Sprintf("10.0.0.%d/32", i), ipam.StateBound)
	}
	for i := range 69 {
		o.held("q", fmt.Sprintf("10.0.1.%d/32", i), ipam.StateBound)
	}
	report := NewWhoReport(o.build(), netip.MustParsePrefix("10.0.0.0/8"), MostBlocks)
	p, q := report.Places[0], report.Places[1]
	if len(p.Blocks) != 30 || len(q.Blocks) != MostBlocks-30 || len(q.Withheld) > 0 || report.Omitted != 50 {
		t.Errorf("%d and %d blocks and %d ranges are listed, and %d left out, want 30, 20, 0 and 50", len(p.Blocks), len(q.Blocks), len(q.Withheld), report.Omitted)
	}
}

func TestWhoArgumentIsParsed(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1": "10.0.0.1/32", "10.0.0.0/24": "10.0.0.0/24", "2001:DB8::1": "2001:db8::1/128",
		"::/0": "::/0", "::ffff:10.0.0.1": "10.0.0.1/32", "10.0.0.1/32": "10.0.0.1/32",
	} {
		if got, err := ParseAsked(text); err != nil || got.String() != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "10", "10.0.0.1/24", "10.0.0.0/33", "fe80::1%eth0", "::ffff:10.0.0.0/104", "host"} {
		if got, err := ParseAsked(text); err == nil {
			t.Errorf("%q is read as %s", text, got)
		}
	}
}

// TestWhoReportNamesDomainsThatShareAddresses records one address in several routing domains.
func TestWhoReportNamesDomainsThatShareAddresses(t *testing.T) {
	o := (&objects{}).
		pool(build.Pool("root").CIDR("10.0.0.0/8")).
		pool(build.Pool("child").Child("root", 24)).
		pool(build.Pool("lab").CIDR("10.0.0.0/16").Domain("lab")).
		pool(build.Pool("empty").CIDR("10.0.0.0/16").Domain("empty")).
		carved("root", "10.0.0.0/24", "child").
		held("child", "10.0.0.2/32", ipam.StateBound).
		held("child", "10.0.0.3/32", ipam.StateBound).
		held("child", "10.0.0.4/32", ipam.StateRetained).
		held("lab", "10.0.0.2/31", ipam.StateBound).
		held("lab", "10.0.0.4/32", ipam.StateBound).
		held("lab", "10.0.0.9/32", ipam.StateBound)
	for asked, want := range map[string][]string{
		"10.0.0.2/32":  {"default", "lab"},
		"10.0.0.3/32":  {"default", "lab"}, // a block around it
		"10.0.0.4/32":  nil,                // one is retained
		"10.0.0.9/32":  nil,
		"10.0.0.0/24":  {"default", "lab"},
		"10.0.0.8/29":  nil,
		"10.9.0.0/16":  nil,
		"10.0.0.16/28": nil,
	} {
		if got := NewWhoReport(o.build(), netip.MustParsePrefix(asked), 1).SharedBy; !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", asked, got, want)
		}
	}
}
