package pools

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Pools of one CIDR: the first exists from the beginning, and others are made when it has gone.
var (
	there    = Pool{Block: Whole, There: true}
	made     = Pool{Block: Whole, Requests: 1}
	again    = Pool{Block: Whole, There: true, Requests: 1}
	stays    = Pool{Block: Whole, There: true, Stays: true}
	childOf0 = func(p Pool) Pool { p.Parent = 1; return p }
)

// claimIn returns a claim that a client creates once, in a pool.
func claimIn(pool, block uint8) Claim { return Claim{Pool: pool, Block: block, Requests: 1} }

// scenarios are explored completely. Each is as large as memory and patience allow.
var scenarios = []Scenario{
	{Name: "a pool is deleted or forced away, and another made on its CIDR", Replicas: 3, Force: true,
		Pools: []Pool{there, made}, Claims: []Claim{claimIn(0, Whole), claimIn(1, Half)}},
	{Name: "the same, crashes and a relist", Replicas: 2, Force: true, Crashes: 2, Relists: 1,
		Pools: []Pool{there, made}, Claims: []Claim{claimIn(0, Whole), claimIn(1, Half)}},
	{Name: "the same, a pool that is taken for gone, a relist", Replicas: 2, Mistakes: 1, Relists: 1,
		Pools: []Pool{there, made}, Claims: []Claim{claimIn(0, Whole), claimIn(1, Half)}},
	{Name: "a pool goes, and is made again under its own name", Replicas: 3, Force: true,
		Pools: []Pool{again}, Claims: []Claim{claimIn(0, Whole), claimIn(0, Half)}},
	{Name: "a pool goes, another is made on its CIDR, and it is to be made again", Replicas: 2, Force: true,
		Pools: []Pool{again, {Block: Whole, Requests: 1, Stays: true}}, Claims: []Claim{claimIn(0, Whole), claimIn(1, Half)}},
	{Name: "a child pool goes, and another is made on its CIDR", Replicas: 3, Force: true,
		Pools: []Pool{stays, childOf0(there), childOf0(made)}, Claims: []Claim{claimIn(1, Whole), claimIn(2, Half)}},
	{Name: "a child pool goes, and its parent hands its CIDR out", Replicas: 3, Force: true,
		Pools: []Pool{stays, childOf0(there)}, Claims: []Claim{claimIn(1, Whole), claimIn(0, Half)}},
	{Name: "a parent goes while a child is made, and another pool on its CIDR", Replicas: 2, Force: true,
		Pools: []Pool{there, childOf0(made), made}, Claims: []Claim{claimIn(1, Whole), claimIn(2, Half)}},
	{Name: "three claims of a project in a pool, of which it may have two", Replicas: 3, PerPool: 2,
		Pools: []Pool{{Block: 0b111, There: true, Stays: true}}, Claims: []Claim{claimIn(0, 0b001), claimIn(0, 0b010), claimIn(0, 0b100)}},
	{Name: "two claims of a project in a pool, of which it may have one, a crash and a relist", Replicas: 3, PerPool: 1, Relists: 1, Crashes: 1,
		Pools: []Pool{stays}, Claims: []Claim{{Block: 0b001, Requests: 2}, claimIn(0, 0b010)}},
	{Name: "three claims of two projects in two pools, of which each may have one overall", Replicas: 3, Overall: 1,
		Pools: []Pool{stays, {Block: 0b1100, There: true, Stays: true}}, Claims: []Claim{claimIn(0, Half), claimIn(1, 0b0100), {Pool: 1, Block: 0b1000, Project: 1, Requests: 1}}},
}

// large are the scenarios of more than 650,000 states but the first, which go test
// -short leaves out.
var large = map[string]bool{
	"the same, crashes and a relist":                                                                    true,
	"the same, a pool that is taken for gone, a relist":                                                 true,
	"a pool goes, and is made again under its own name":                                                 true,
	"a child pool goes, and another is made on its CIDR":                                                true,
	"a parent goes while a child is made, and another pool on its CIDR":                                 true,
	"the same, claims of the whole block and of what stays":                                             true,
	"the same, a crash and a relist":                                                                    true,
	"the same, and made again under its own name":                                                       true,
	"the same, and a cache is behind":                                                                   true,
	"a pool moves, and then has both halves, while another is made on the first, and a cache is behind": true,
}

func TestNoBlockOfDeletedPoolHasTwoHolders(t *testing.T) {
	begin, states, steps := time.Now(), 0, 0
	for _, s := range slices.Concat(scenarios, editScenarios) {
		if testing.Short() && large[s.Name] {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			began := time.Now()
			found := New(s, 0).Explore()
			if found.Violation != "" {
				t.Errorf("%s:\n  %s", found.Violation, strings.Join(found.Trace, "\n  "))
			}
			t.Logf("%s: %d states, %d steps, %.1f s", s.Name, found.States, found.Steps, time.Since(began).Seconds())
			states, steps = states+found.States, steps+found.Steps
		})
	}
	t.Logf("explored completely: %d states, %d steps, in %.1f s", states, steps, time.Since(begin).Seconds())
}

// withoutRule holds a rule, and a scenario in which it is needed.
type withoutRule struct {
	rule Rules
	Scenario
}

// TestEveryPoolRuleIsNeeded leaves one out at a time.
func TestEveryPoolRuleIsNeeded(t *testing.T) {
	remade := Scenario{Replicas: 2, Force: true, Pools: []Pool{there, made}, Claims: []Claim{claimIn(0, Whole), claimIn(1, Half)}}
	for _, c := range append([]withoutRule{
		{OwnRecord, remade},
		{OwnConfirmed, Scenario{Replicas: 2, Force: true, Pools: []Pool{again, made}, Claims: []Claim{claimIn(0, Whole), claimIn(1, Half)}}},
		{MarkFirst, remade},
		{SeeMark, remade},
		{MarkVersion, Scenario{Replicas: 3, Force: true, Pools: []Pool{there}, Claims: []Claim{claimIn(0, Whole), claimIn(0, Half)}}},
		{Unmark, remade},
		{GiveUpMarked, Scenario{Replicas: 2, Force: true, Pools: []Pool{again, made}, Claims: []Claim{claimIn(0, Whole), claimIn(1, Half)}}},
		{LimitAtConfirm, Scenario{Replicas: 2, PerPool: 1, Pools: []Pool{stays}, Claims: []Claim{claimIn(0, Half), claimIn(0, Other)}}},
	}, withoutEditRules...) {
		t.Run(strings.TrimSuffix("without: "+c.rule.String()+"; "+c.Name, "; "), func(t *testing.T) {
			found := New(c.Scenario, c.rule).Explore()
			if found.Violation == "" {
				t.Fatalf("%d states, and no violation", found.States)
			}
			t.Logf("without %q %s, after %d steps, found among %d states:\n  %s", c.rule, found.Violation, len(found.Trace), found.States, strings.Join(found.Trace, "\n  "))
		})
	}
}

func TestKeysDistinguishStates(t *testing.T) {
	for _, m := range []*Model{
		New(Scenario{Replicas: 3, Force: true, Crashes: 1, Relists: 1, Mistakes: 1, Pools: []Pool{again, made}, Claims: []Claim{claimIn(0, Whole), claimIn(1, Half)}}, SeeMark),
		New(Scenario{Replicas: 2, Lag: 4, Twins: true, Force: true, Mistakes: 1, Relists: 1, Pools: []Pool{edited(again, Half), onRest}, Claims: rest[:1]}, GiveUpMarked),
		New(Scenario{Replicas: 3, Lag: 4, Crashes: 1, Force: true, Pools: []Pool{edited(again, Half, Other), onRest}, Claims: rest}, 0),
	} {
		keysDistinguishStates(t, m)
	}
}

func keysDistinguishStates(t *testing.T, m *Model) {
	t.Helper()
	begin := m.initial()
	states, work := map[key]state{begin.key(): begin}, []state{begin}
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
