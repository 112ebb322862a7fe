package torture

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFiguresAreWrittenBetweenMarkers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reliability.md")
	if err := os.WriteFile(path, []byte("before\n"+figuresBegin+"what it said before\n"+figuresEnd+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &Report{Seed: 7, Faults: 3, Began: time.Unix(0, 0), ByKind: map[string]Outage{"kill etcd": {Count: 3, Longest: 1.25}}}
	for range 2 { // the second time changes nothing
		if err := r.WriteInto(path); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"before\n" + figuresBegin, figuresEnd + "after\n", "SEED=7", "| kill etcd | 3 | 1.2 |", "| **violations** | 0 |"} {
			if strings.Count(string(text), want) != 1 {
				t.Errorf("want %q once in:\n%s", want, text)
			}
		}
		if strings.Contains(string(text), "what it said before") {
			t.Error("the old figures are still there")
		}
	}
}

func TestOutageCountsForOverlappingFaults(t *testing.T) {
	s := &service{gaps: []gap{{second(10), second(13)}, {second(20), second(21)}}}
	got := s.outages([]fault{
		{Kind: "kill", Began: second(9), Ended: second(11)},
		{Kind: "kill", Began: second(19), Ended: second(22)},
		{Kind: "cut", Began: second(14), Ended: second(15)},
	})
	if got["kill"] != (Outage{Count: 2, Longest: 3}) || got["cut"] != (Outage{Count: 1}) {
		t.Errorf("%+v", got)
	}
}
