package operator

import (
	"strings"
	"testing"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func TestLeaseStatesLeaderVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3":                 "v1.2.3",
		"v1.2.3-0.2026+dirty":    "v1.2.3-0.2026_dirty",
		"(devel)":                "devel",
		strings.Repeat("v1", 40): "",
		"of two words":           "",
	} {
		lease := &resourcelock.LeaseLock{}
		label(lease, version)
		if got := lease.Labels[versionLabel]; got != want {
			t.Errorf("%q has the label %q, want %q", version, got, want)
		}
	}
}
