package view

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

func TestPoolsCountRangesThatPoolOccupies(t *testing.T) {
	o := (&objects{}).
		pool(build.Pool("root").CIDR("10.0.0.0/24")).
		occupied("root", "a", "10.0.0.0/24", "10.0.0.10-10.0.0.19", "10.0.0.10/31", "10.0.0.12/30", "10.0.0.16/30").
		held("a", "10.0.0.13/32", ipam.StateBound)
	var b strings.Builder
	if err := reportOfPools(o.build(), nil).Table(false).Write(&b, false, false); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(b.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"root 10.0.0.0/24 █░░░░░░░░░ 3% 0 10 246 0 /25 1",
		"a ranges of 10.0.0.0/24 █░░░░░░░░░ 10% 1 0 9 0 /30 1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
