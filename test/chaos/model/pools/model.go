package pools

import (
	"fmt"

	"github.com/cadastre-dev/cadastre/test/chaos/model/explore"
)

// Model holds a scenario and the rules that it is played by.
type Model struct {
	scenario  Scenario
	rules     Rules
	symmetric bool
}

// New returns the model of a scenario in which the rules left out are not kept. It panics if the
// scenario has more holders or records than a key can distinguish.
func New(scenario Scenario, leftOut Rules) *Model {
	// A trace names replicas, so they are distinguished if one is expected.
	m := &Model{scenario: scenario, rules: allRules &^ leftOut, symmetric: leftOut == 0}
	records := 0
	for _, p := range scenario.Pools {
		records += int(flag(p.There) + p.Requests)
	}
	for _, c := range scenario.Claims {
		records += int(c.Requests)
	}
	if m.holders() > maxHolders || records > maxRecords || scenario.Replicas > maxReplicas {
		panic("more than a key tells apart")
	}
	return m
}

// Explore visits every state that can be reached, until one breaks an invariant, and makes sure
// that the model can become quiet from each, without help from people.
func (m *Model) Explore() explore.Found {
	return explore.Completely[state, key, step](system{m}, "a record is lost for good, or stays marked for good")
}

// system implements explore.System for a model.
type system struct{ *Model }

// Initial implements explore.System.
func (y system) Initial() state {
	s := y.initial()
	y.tidy(&s)
	return s
}

// Key implements explore.System.
func (y system) Key(s *state) key { return s.key() }

// Next implements explore.System.
func (y system) Next(s *state, emit func(step, state)) { y.next(s, emit) }

// Expected implements explore.System.
func (y system) Expected(by step) bool {
	switch by.what {
	case crashes, relists, asks, findsName, adopts, mistakes, deletesHolder, forces:
		return false
	}
	return true
}

// Violation implements explore.System.
func (y system) Violation(s *state) string {
	for h := range y.holders() {
		if s.holders[h].phase != live {
			continue
		}
		if v := y.unfounded(s, h); v != "" {
			return v
		}
		for other := range h {
			if s.holders[other].phase == live && y.excludes(h, other) {
				return fmt.Sprintf("the live holders %d and %d overlap", other, h)
			}
		}
	}
	return y.exceeded(s)
}

// excludes reports whether two holders cannot both be live: claims that overlap, and
// pools of one home that do.
func (m *Model) excludes(a, b uint8) bool {
	bothClaims := !m.isPool(a) && !m.isPool(b)
	return m.block(a)&m.block(b) != 0 && (bothClaims || m.home(a) == m.home(b))
}

// unfounded returns the record that a live holder lacks: its own, or that of a pool that it lies
// in.
func (m *Model) unfounded(s *state, h uint8) string {
	if s.records[s.holders[h].record].phase != present {
		return fmt.Sprintf("the record of the live holder %d is deleted", h)
	}
	for home := m.home(h); home > 0; home = m.home(home - 1) {
		if !m.recorded(s, home-1) {
			return fmt.Sprintf("the holder %d is live, and its pool %d is not recorded", h, home-1)
		}
	}
	return ""
}

// recorded reports whether a pool's own record exists.
func (m *Model) recorded(s *state, pool uint8) bool {
	for _, r := range s.records {
		if r.phase == present && r.holder == pool {
			return true
		}
	}
	return false
}

// stays reports whether a holder is a pool that is never deleted.
func (m *Model) stays(h uint8) bool { return m.isPool(h) && m.scenario.Pools[h].Stays }

func (m *Model) exceeded(s *state) string {
	for h := uint8(len(m.scenario.Pools)); h < m.holders(); h++ {
		inPool, overall := uint8(0), uint8(0)
		for other := uint8(len(m.scenario.Pools)); other < m.holders(); other++ {
			if s.holders[other].phase == live && m.project(other) == m.project(h) {
				overall++
				inPool += flag(m.home(other) == m.home(h))
			}
		}
		if !m.keeps(inPool, overall) {
			return fmt.Sprintf("project %d has %d live claims, %d of them in pool %d", m.project(h), overall, inPool, m.home(h)-1)
		}
	}
	return ""
}

// Quiet implements explore.System.
func (y system) Quiet(s *state) bool {
	for i := range y.scenario.Replicas {
		if r := &s.stage[i]; r.down || r.at != s.logged || r.task.doing != nothing {
			return false
		}
	}
	used := y.used(s)
	for p := range y.scenario.Pools {
		if s.holders[p].phase == terminating && used&bit(uint8(p)) == 0 {
			return false
		}
	}
	for n, r := range s.records {
		h := &s.holders[r.holder]
		isHeld := h.phase == live && h.record == uint8(n) || y.isPool(r.holder) && used&bit(r.holder) != 0
		if r.phase == present && (r.marked || !isHeld) {
			return false
		}
	}
	return true
}

// used returns the pools in which something is recorded, one bit each.
func (m *Model) used(s *state) uint8 {
	all := uint8(0)
	for _, r := range s.records {
		if r.phase == present && m.home(r.holder) > 0 {
			all |= bit(m.home(r.holder) - 1)
		}
	}
	return all
}
