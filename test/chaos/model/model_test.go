package model

import (
	"strings"
	"testing"
	"time"
)

var (
	// whole and half are claims that a client creates, once or again.
	whole      = Claim{Block: Whole, Requests: 1}
	half       = Claim{Block: Half, Requests: 1}
	wholeTwice = Claim{Block: Whole, Requests: 2}
	// waits is a claim that leaders bind.
	waits = Claim{Block: Half, Waits: true}
)

// scenarios are explored completely. Each is as large as memory and patience
// allow.
var scenarios = []Scenario{
	{Name: "three requests at three replicas", Claims: []Claim{whole, half, half}, Records: 3},
	{Name: "two requests, one tried again", Claims: []Claim{wholeTwice, half}, Records: 3},
	{Name: "two requests, crashes, a relist, a late create", Claims: []Claim{whole, half}, Records: 2, Crashes: 2, Relists: 1, Ambiguous: 1},
	{Name: "a claim that is deleted and restored", Claims: []Claim{wholeTwice, half}, Records: 2, Adoptions: 2, Restore: true},
	{Name: "a request and leaders that bind and adopt", Claims: []Claim{whole, waits}, Records: 2, Adoptions: 1},
	{Name: "a request and leaders, a crash", Claims: []Claim{whole, waits}, Records: 2, Crashes: 1},
	{Name: "leaders, a crash, adoption", Claims: []Claim{waits}, Records: 2, Adoptions: 1, Crashes: 1},
	{Name: "a request and leaders, a release that halts", Claims: []Claim{whole, waits}, Records: 2, Halting: 1},
	{Name: "leaders, a crash, a release that halts", Claims: []Claim{waits}, Records: 2, Crashes: 1, Halting: 1},
	{Name: "leaders that adopt, a release that halts", Claims: []Claim{waits}, Records: 2, Adoptions: 1, Halting: 1},
	{Name: "a claim that is restored, a release that halts", Claims: []Claim{wholeTwice}, Records: 2, Adoptions: 1, Restore: true, Halting: 1},
}

// large are the scenarios of more than 900,000 states, which go test -short leaves out.
var large = map[string]bool{
	"three requests at three replicas":               true,
	"two requests, crashes, a relist, a late create": true,
	"a request and leaders that bind and adopt":      true,
	"leaders, a crash, adoption":                     true,
	"a request and leaders, a release that halts":    true,
	"leaders, a crash, a release that halts":         true,
	"leaders that adopt, a release that halts":       true,
}

func TestNoBlockHasTwoHoldersOrIsLost(t *testing.T) {
	begin, states, steps := time.Now(), 0, 0
	for _, s := range scenarios {
		if testing.Short() && large[s.Name] {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			began := time.Now()
			found := New(s, 0).Explore(true)
			if found.Violation != "" {
				t.Errorf("%s:\n  %s", found.Violation, strings.Join(found.Trace, "\n  "))
			}
			t.Logf("%s: %d states, %d steps, %.1f s", s.Name, found.States, found.Steps, time.Since(began).Seconds())
			states, steps = states+found.States, steps+found.Steps
		})
	}
	t.Logf("explored completely: %d states, %d steps, in %.1f s", states, steps, time.Since(begin).Seconds())
}

// TestEveryRuleIsNeeded leaves one out at a time.
func TestEveryRuleIsNeeded(t *testing.T) {
	for _, c := range []struct {
		rule Rules
		Scenario
	}{
		{Confirm, Scenario{Claims: []Claim{whole, half}, Records: 2}},
		{OwnWatch, Scenario{Claims: []Claim{whole, half}, Records: 2}},
		{AtomicReplace, Scenario{Claims: []Claim{whole, half}, Records: 2, Relists: 1}},
		{RecordsFirst, Scenario{Claims: []Claim{whole, half}, Records: 2}},
		{Grace, Scenario{Claims: []Claim{whole, half}, Records: 2}},
		{AskHolder, Scenario{Claims: []Claim{whole, waits}, Records: 2}},
		{Fence, Scenario{Claims: []Claim{whole, waits}, Records: 2}},
		{DeleteByVersion, Scenario{Claims: []Claim{waits}, Records: 2, Adoptions: 1}},
		{DeleteByUID, Scenario{Claims: []Claim{waits}, Records: 3}},
		{OwnAnswer, Scenario{Claims: []Claim{waits}, Records: 2, Relists: 1, Ambiguous: 1}},
		{Finish, Scenario{Claims: []Claim{waits}, Records: 2, Halting: 1}},
		{Collect, Scenario{Claims: []Claim{whole}, Records: 1}},
		{Undisputed, Scenario{Claims: []Claim{wholeTwice, half}, Records: 2, Adoptions: 1, Restore: true, Crashes: 1}},
	} {
		if testing.Short() && c.rule == Finish { // 2.8 million states
			continue
		}
		t.Run("without: "+c.rule.String(), func(t *testing.T) {
			found := New(c.Scenario, c.rule).Explore(true)
			if found.Violation == "" {
				t.Fatalf("%d states, and no violation", found.States)
			}
			t.Logf("without %q %s, found among %d states:\n  %s", c.rule, found.Violation, found.States, strings.Join(found.Trace, "\n  "))
			if testing.Short() {
				return
			}
			if kept := New(c.Scenario, 0).Explore(true); kept.Violation != "" {
				t.Errorf("with the rule: %s", kept.Violation)
			}
		})
	}
}

func TestKeysDistinguishStates(t *testing.T) {
	m := New(Scenario{Claims: []Claim{wholeTwice, waits}, Records: 2, Adoptions: 1, Crashes: 1, Relists: 1, Ambiguous: 1, Halting: 1, Restore: true}, 0)
	states, work := map[key]state{}, []state{m.initial()}
	for len(work) > 0 && len(states) < 100_000 {
		s := work[0]
		work = work[1:]
		m.next(&s, func(_ step, n state) {
			other, ok := states[n.key()]
			if ok && other != n {
				t.Fatalf("one key for\n%+v and\n%+v", other, n)
			}
			if !ok {
				states[n.key()] = n
				work = append(work, n)
			}
		})
	}
}
