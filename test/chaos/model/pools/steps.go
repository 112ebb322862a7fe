package pools

import (
	"fmt"
	"strings"
)

// step represents a step of a replica, a client or the API server, for the trace.
type step struct {
	what    what
	who, on uint8
}

type what uint8

const (
	crashes what = iota
	restarts
	relists
	sees
	asks
	findsName
	adopts
	answers
	refuses
	timesOut
	collects
	finalizes
	marks
	mistakes
	unmarks
	deletes
	deletesHolder
	forces
	edits
	records
	recordsFormer
	takesFormer
)

// texts returns the descriptions of steps, for the number of a replica or holder, and that of the
// object of the step.
func texts() map[what]string {
	return map[what]string{
		crashes:       "replica %d crashes",
		restarts:      "replica %d starts again, with a list",
		relists:       "replica %d's watch is cut: it lists",
		sees:          "replica %d sees the next event, of record %d",
		asks:          "replica %d is asked to create holder %d, finds its block free, and records it",
		findsName:     "replica %d is asked to create holder %d, and cannot record it: the name exists",
		adopts:        "replica %d is asked to create pool %d again, and takes over its former record",
		answers:       "replica %d answers with record %d; its holder is stored",
		refuses:       "the API server refuses the answer of replica %d with record %d",
		timesOut:      "replica %d gives up waiting for record %d",
		collects:      "replica %d deletes record %d, which has no holder",
		finalizes:     "replica %d sees no block in pool %d, which is being deleted, and removes its finalizer",
		marks:         "replica %d sees no block that only the pool's own record %d covers, and marks that as releasing",
		mistakes:      "replica %d takes the pool of record %d for gone, and marks that as releasing",
		unmarks:       "replica %d removes the mark of record %d",
		deletes:       "replica %d sees no block that only the pool's own record %d covers, and deletes that",
		deletesHolder: "a client deletes holder %d",
		forces:        "a person forces pool %d away",
		edits:         "a client edits pool %d",
		records:       "replica %d sees no own record of pool %d with its present block, and records one",
		recordsFormer: "replica %d records an own record of pool %d with its former block: its cache is behind",
		takesFormer:   "replica %d marks the own record %d as releasing, as the pool has another with its former block: its cache is behind",
	}
}

// String returns a description of the step.
func (t step) String() string {
	text := texts()[t.what]
	args := []any{t.who, t.on}
	return fmt.Sprintf(text, args[:strings.Count(text, "%")]...)
}

type move func(step, func(*state))

// next emits every state that one step leads to.
func (m *Model) next(s *state, emit func(step, state)) {
	to := func(t step, change func(n *state)) {
		n := *s
		change(&n)
		if m.tidy(&n); m.scenario.Lag == 0 || n.logged <= m.scenario.Lag {
			emit(t, n)
		}
	}
	for i := range m.scenario.Replicas {
		r, who := &s.stage[i], uint8(i)
		if m.symmetric && i > 0 && *r == s.stage[i-1] {
			continue // the same happens to both
		}
		if r.down {
			to(step{what: restarts, who: who}, func(n *state) { n.stage[i].down = false; m.list(n, i) })
			continue
		}
		m.befalls(s, i, to)
		if r.task.doing != nothing {
			m.goesOn(s, i, to)
			continue
		}
		m.requests(s, i, to)
		m.records(s, i, to)
		m.releases(s, i, to)
	}
	m.people(s, to)
}

// befalls emits the events that can happen to a process and its view.
func (m *Model) befalls(s *state, i int, to move) {
	r, who := &s.stage[i], uint8(i)
	if s.crashes > 0 {
		to(step{what: crashes, who: who}, func(n *state) { n.crashes--; n.stage[i] = replica{down: true} })
	}
	if r.at == s.logged {
		return
	}
	to(step{sees, who, s.log[r.at].record}, func(n *state) { m.see(n, i) })
	if s.relists > 0 {
		to(step{what: relists, who: who}, func(n *state) { n.relists--; m.list(n, i) })
	}
}

// requests emits the requests that an idle replica may get. The view, which may be behind, shows
// whether a block is free, or a former record exists; a request that is held up after that is one
// whose replica sees nothing new in that time.
func (m *Model) requests(s *state, i int, to move) {
	r, who := &s.stage[i], uint8(i)
	for h := range m.holders() {
		if !m.mayBeAsked(s, h) {
			continue
		}
		own, ok := m.first(s, r, h)
		switch {
		case m.isPool(h) && ok && r.marked&bit(own) == 0:
			to(step{adopts, who, h}, func(n *state) {
				n.holders[h].requests--
				if n.update(own, r.versions[own], false) {
					n.records[own].uid = 0
					n.stage[i].task = task{doing: awaiting, holder: h, record: own, version: r.versions[own] + 1}
				}
			})
		case m.isPool(h) && ok:
		case !m.rival(s, r, m.newRecord(h), maxRecords) && (m.isPool(h) || m.within(s, r, h, 1)):
			m.creates(s, i, h, to)
		}
	}
}

// mayBeAsked reports whether a client may create a holder: it does not exist, and its pool has
// existed at some time, with the block.
func (m *Model) mayBeAsked(s *state, h uint8) bool {
	home, phase := m.home(h), s.holders[h].phase
	return s.holders[h].requests > 0 && (phase == absent || phase == gone) &&
		(home == 0 || s.holders[home-1].phase != absent && m.hasHad(s, home-1, m.block(h)))
}

// creates emits the results of the create call.
func (m *Model) creates(s *state, i int, h uint8, to move) {
	who := uint8(i)
	for n := range uint8(maxRecords) {
		if r := &s.records[n]; m.isPool(h) && r.phase == present && r.holder == h && r.first {
			to(step{findsName, who, h}, func(n *state) { n.holders[h].requests-- })
			return
		}
	}
	to(step{asks, who, h}, func(n *state) {
		n.holders[h].requests--
		n.stage[i].task = task{doing: awaiting, holder: h, record: n.record(m.newRecord(h))}
	})
}

// newRecord returns the record of a holder that is to be created.
func (m *Model) newRecord(h uint8) record {
	return record{phase: present, holder: h, block: m.block(h), first: m.isPool(h)}
}

// record stores a new record, and returns its number.
func (s *state) record(r record) uint8 {
	free := uint8(0)
	for s.records[free].phase != unmade {
		if free++; free == maxRecords {
			panic("more records than a key tells apart")
		}
	}
	r.event = event{record: free}
	s.records[free] = r
	s.write(free)
	return free
}

// people emits the deletions of existing holders.
func (m *Model) people(s *state, to move) {
	for h := range m.holders() {
		isPool, phase := m.isPool(h), s.holders[h].phase
		if isPool && phase == live && int(s.holders[h].edit) < len(m.scenario.Pools[h].Edits) {
			to(step{what: edits, who: h}, func(n *state) { n.holders[h].edit++ })
		}
		if m.stays(h) {
			continue
		}
		if phase == live {
			to(step{what: deletesHolder, who: h}, func(n *state) {
				n.holders[h].phase, n.holders[h].record = absent, 0
				if isPool {
					n.holders[h].phase = terminating
				}
			})
		}
		if m.scenario.Force && isPool && (phase == live || phase == terminating) {
			to(step{what: forces, who: h}, func(n *state) { n.holders[h].phase, n.holders[h].record = gone, 0 })
		}
	}
}
