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
	// reuses means that a record may have the number of one that everybody has forgotten.
	reuses bool
}

// New returns the model of a scenario in which the rules left out are not kept. It panics if the
// scenario has more holders or records than a key can distinguish.
func New(scenario Scenario, leftOut Rules) *Model {
	// A trace names replicas, so they are distinguished if one is expected.
	m := &Model{scenario: scenario, rules: allRules &^ leftOut, symmetric: leftOut == 0, reuses: leftOut == 0}
	records, tooMany := 0, false
	for _, p := range scenario.Pools {
		records += int(flag(p.There) + p.Requests)
		m.reuses = m.reuses || len(p.Edits) > 0
		edits := len(p.Edits) * int(1+flag(scenario.Twins))
		records, tooMany = records+edits, tooMany || len(p.Edits) > maxEdits || flag(p.There)+p.Requests > maxLives
	}
	for _, c := range scenario.Claims {
		records += int(c.Requests)
	}
	if tooMany || m.holders() > maxHolders || records > maxRecords || scenario.Replicas > maxReplicas {
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
	case crashes, relists, asks, findsName, adopts, mistakes, deletesHolder, forces, edits, recordsFormer, takesFormer:
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
			if s.holders[other].phase == live && y.excludes(s, h, other) {
				return fmt.Sprintf("the live holders %d and %d overlap", other, h)
			}
		}
	}
	if v := y.confirmedTwice(s); v != "" {
		return v
	}
	return y.exceeded(s)
}

// excludes reports whether two holders cannot both be live: claims that overlap, and
// pools of one home that do. Pools that are edited may overlap by their specs.
func (m *Model) excludes(s *state, a, b uint8) bool {
	bothClaims := !m.isPool(a) && !m.isPool(b)
	bothPools := m.home(a) == m.home(b) && s.holders[a].edit == 0 && s.holders[b].edit == 0
	return m.block(a)&m.block(b) != 0 && (bothClaims || bothPools)
}

// confirmedTwice returns the own records of two pools that overlap and are both confirmed, in some
// view.
func (m *Model) confirmedTwice(s *state) string {
	confirmed := uint8(0)
	for i := range s.stage {
		confirmed |= s.stage[i].confirmed
	}
	for n := range uint8(maxRecords) {
		for other := range n {
			a, b := &s.records[n], &s.records[other]
			isBoth := confirmed&bit(n) != 0 && confirmed&bit(other) != 0 && a.phase == present && b.phase == present
			if isBoth && a.holder != b.holder && m.rivals(a, b) {
				return fmt.Sprintf("the own records %d and %d of two pools overlap, and are both confirmed", other, n)
			}
		}
	}
	return ""
}

// unfounded returns the record that a live holder lacks: its own, or that of a pool that it lies
// in.
func (m *Model) unfounded(s *state, h uint8) string {
	if !m.isPool(h) {
		r := &s.records[s.holders[h].record]
		if r.phase != present {
			return fmt.Sprintf("the record of the live holder %d is deleted", h)
		}
		if !m.founded(s, m.home(h), r.block) {
			return fmt.Sprintf("the holder %d is live, and no own record of pool %d covers its block", h, m.home(h)-1)
		}
		return ""
	}
	for n := range uint8(maxRecords) {
		r := &s.records[n]
		if r.phase == present && r.holder == h && m.exists(s, n) && m.founded(s, m.home(h), r.block) {
			return ""
		}
	}
	return fmt.Sprintf("the live pool %d has no own record, or its parent has none", h)
}

// founded reports whether the own records of the pool cover a block, and so on for its parents.
func (m *Model) founded(s *state, home, block uint8) bool {
	if home == 0 {
		return true
	}
	union := uint8(0)
	for n := range uint8(maxRecords) {
		r := &s.records[n]
		if r.phase == present && r.holder == home-1 && m.founded(s, m.home(home-1), r.block) {
			union |= r.block
		}
	}
	return block&^union == 0
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
		if r.phase == present && (r.marked || !y.hasUse(s, uint8(n))) {
			return false
		}
	}
	return true
}

// hasUse reports whether a record may stay for good: its claim is live, only it covers a record in
// its pool, or it is the pool's by its spec, or the pool's while that is excluded.
func (m *Model) hasUse(s *state, n uint8) bool {
	r := &s.records[n]
	if !m.isPool(r.holder) {
		h := &s.holders[r.holder]
		return h.phase == live && h.record == n
	}
	all, isReplaced, isExcluded := uint8(0), false, false
	wanted := record{holder: r.holder, uid: r.uid, block: m.present(s, r.holder)}
	for other := range uint8(maxRecords) {
		o := &s.records[other]
		if o.phase != present {
			continue
		}
		all |= bit(other)
		isReplaced = isReplaced || other != n && o.holder == r.holder && o.uid == r.uid && o.block == wanted.block
		isExcluded = isExcluded || m.rivals(o, &wanted)
	}
	isOwn := m.exists(s, n) && !isReplaced && (r.block == wanted.block) != isExcluded
	return isOwn || m.onlyCovers(s, n, all, all)
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
