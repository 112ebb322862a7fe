package model

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
// scenario lets a record have more versions than a key can distinguish.
func New(scenario Scenario, leftOut Rules) *Model {
	if scenario.Adoptions+min(scenario.Halting, 1) > maxVersion {
		panic("more versions of a record than a key tells apart")
	}
	// A trace names replicas, so they are distinguished if one is expected.
	return &Model{scenario: scenario, rules: allRules &^ leftOut, symmetric: leftOut == 0}
}

// Explore visits every state that can be reached, breadth first, until one violates an invariant.
// If quiescence is requested it then makes sure that it can be reached from every state, without
// the deletion of a claim.
func (m *Model) Explore(quiescence bool) explore.Found {
	stuck := ""
	if quiescence {
		stuck = "a block is lost for good, or a claim waits for nothing"
	}
	return explore.Completely[state, key, step](system{m}, stuck)
}

// system implements explore.System for a model.
type system struct{ *Model }

// Initial implements explore.System.
func (y system) Initial() state { return y.initial() }

// Key implements explore.System.
func (y system) Key(s *state) key { return s.key() }

// Next implements explore.System.
func (y system) Next(s *state, emit func(step, state)) { y.next(s, emit) }

// Violation implements explore.System.
func (y system) Violation(s *state) string { return y.violation(s) }

// Quiet implements explore.System.
func (y system) Quiet(s *state) bool { return y.quiet(s) }

// Expected implements explore.System.
func (y system) Expected(by step) bool { return by.what != removesClaim }

// violation returns the invariant that a state breaks, if any.
func (m *Model) violation(s *state) string {
	for i, c := range s.claims {
		if c.phase != live {
			continue
		}
		if r := s.records[c.record]; r.phase != present || r.terminating {
			return fmt.Sprintf("the record %d of the live claim %d is deleted", c.record, i)
		}
		for j, other := range s.claims[:i] {
			if other.phase == live && m.scenario.Claims[i].Block&m.scenario.Claims[j].Block != 0 {
				return fmt.Sprintf("the live claims %d and %d overlap", j, i)
			}
		}
	}
	for i := range s.stage {
		if r := &s.stage[i]; r.life == up && r.listed == 0 && r.at == s.logged && r.seen != presentIn(s) {
			return fmt.Sprintf("replica %d has seen everything, and its view is wrong", i)
		}
	}
	return ""
}

func presentIn(s *state) uint8 {
	all := uint8(0)
	for n, r := range s.records {
		if r.phase == present {
			all |= bit(uint8(n))
		}
	}
	return all
}

// quiet reports whether nothing is under way, every record has a holder, and no claim waits that
// could be served.
func (m *Model) quiet(s *state) bool {
	for _, r := range s.stage {
		if r.life != up || r.at != s.logged || r.listed != 0 || r.task.doing != nothing {
			return false
		}
	}
	for _, r := range s.records {
		if r.phase == late || r.answered {
			return false
		}
	}
	return presentIn(s) == held(s) && !m.waitsForNothing(s)
}

// waitsForNothing reports whether there is a claim that waits although its block is free. Once all
// the records are made that the scenario allows, no claim can be served any more.
func (m *Model) waitsForNothing(s *state) bool {
	taken, left := uint8(0), false
	for i, c := range s.claims {
		if c.phase == live {
			taken |= m.scenario.Claims[i].Block
		}
	}
	for _, r := range s.records[:m.scenario.Records] {
		left = left || r.phase == unmade
	}
	for i, c := range m.scenario.Claims {
		if left && s.claims[i].phase == waiting && c.Block&taken == 0 {
			return true
		}
	}
	return false
}
