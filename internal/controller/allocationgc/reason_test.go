package allocationgc

import (
	"testing"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
)

func TestReleaseReason(t *testing.T) {
	name := func(n string) ipam.Name { return ipam.Name{Namespace: "team", Name: n} }
	c := &Controller{deletedHolders: map[ipam.Name]string{name("seen"): ""}}
	for description, test := range map[string]struct {
		record ipam.Record
		want   metrics.ReleaseReason
	}{
		"its claim was seen to go":        {ipam.Record{Name: name("seen"), Purpose: ipam.PurposeClaim, State: ipam.StateBound}, metrics.HolderDeleted},
		"it has no claim":                 {ipam.Record{Name: name("other"), Purpose: ipam.PurposeClaim, State: ipam.StateBound}, metrics.Orphaned},
		"its retention is over":           {ipam.Record{Name: name("seen"), State: ipam.StateRetained}, metrics.RetentionExpired},
		"its retention was ended by hand": {ipam.Record{Name: name("seen"), State: ipam.StateRetained, Terminating: true}, metrics.Deleted},
		"it has cooled down":              {ipam.Record{Name: name("seen"), State: ipam.StateCooling, Terminating: true}, metrics.ReuseDelayOver},
	} {
		if got := c.reasonOf(test.record); got != test.want {
			t.Errorf("%s: %s, want %s", description, got, test.want)
		}
	}
}
