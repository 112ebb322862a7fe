package view

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
)

// TestAddressHistoryIsSortedAndLimited reads several files, in the order of time, the last entries first if
// there are too many.
func TestAddressHistoryIsSortedAndLimited(t *testing.T) {
	line := func(hour int, action, block string) string {
		return fmt.Sprintf(`{"time":"2026-11-26T%02d:00:00Z","action":%q,"reason":"Allocated","block":%q}`, hour, action, block)
	}
	file := filepath.Join(t.TempDir(), "history.jsonl")
	lines := []string{line(9, "Granted", "10.0.0.0/24"), line(12, "Released", "10.0.0.0/24"), line(10, "Granted", "10.0.1.0/24"), `{"time":"2026-11-26T10:00:00Z","action":"Refused","reason":"Forbidden"}`}
	several := `{"time":"2026-11-26T08:00:00Z","action":"Granted","reason":"Allocated","block":"192.0.2.10/31","additionalBlocks":"192.0.2.12/30 192.0.2.16/30"}`
	if err := os.WriteFile(file, []byte(strings.Join(append(lines, several), "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	now := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 26, 14, 0, 0, 0, time.UTC))
	for name, c := range map[string]struct {
		asked, since string
		most         int
		want         []string
		omitted      int
	}{
		"an address in a block":         {"10.0.0.7/32", "", 9, []string{"09 Granted", "11 Granted", "12 Released"}, 0},
		"a network with blocks":         {"10.0.0.0/23", "", 9, []string{"09 Granted", "10 Granted", "11 Granted", "12 Released"}, 0},
		"for some hours":                {"10.0.0.7/32", "3h", 9, []string{"11 Granted", "12 Released"}, 0},
		"since a moment":                {"10.0.0.7/32", "2026-11-26T12:00:00+00:00", 9, []string{"12 Released"}, 0},
		"since a day":                   {"10.0.0.7/32", "2026-11-26", 9, []string{"09 Granted", "11 Granted", "12 Released"}, 0},
		"the last of many":              {"10.0.0.7/32", "", 2, []string{"11 Granted", "12 Released"}, 1},
		"an additional block":           {"192.0.2.17/32", "", 9, []string{"08 Granted"}, 0},
		"beside additional blocks":      {"192.0.2.20/32", "", 9, []string{}, 0},
		"a block without former holder": {"10.9.0.0/16", "", 9, []string{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := command.NewEnv(genericiooptions.IOStreams{In: strings.NewReader(line(11, "Granted", "10.0.0.4/30"))})
			e.Clock = now
			h, err := historyOptions{files: []string{file, "-"}, since: c.since}.read(e, netip.MustParsePrefix(c.asked), c.most)
			if err != nil {
				t.Fatal(err)
			}
			got := []string{}
			for _, entry := range h.Entries {
				got = append(got, fmt.Sprintf("%02d %s", entry.Time.Hour(), entry.Action))
			}
			for i := range h.Entries {
				if e := &h.Entries[i]; len(e.AdditionalBlocks) > 0 && historyCells(e, false)[2].Text != "192.0.2.10/31 and 2 more" {
					t.Errorf("the blocks are shown as %q", historyCells(e, false)[2].Text)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" || h.Omitted != c.omitted {
				t.Errorf("%d are omitted, want %d; entries (-want +got):\n%s", h.Omitted, c.omitted, diff)
			}
		})
	}
}
