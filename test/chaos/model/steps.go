package model

import (
	"fmt"
	"strings"
)

// step represents a step of a replica, a client or the API server, for the trace.
type step struct {
	what          what
	who, on, also uint8
}

type what uint8

const (
	crashes what = iota
	restarts
	relists
	entersListed
	sees
	asks
	restores
	binds
	finds
	creates
	createsUnanswered
	createsLate
	createsNot
	answers
	writesClaim
	timesOut
	adopts
	asksHolder
	fences
	deletes
	marks
	letsGo
	abandons
	collects
	listsHolders
	arrivesLate
	persists
	refuses
	removesClaim
)

// texts returns the descriptions of steps, for the number of a replica, a claim or a record, and
// those of the objects of the step.
func texts() map[what]string {
	return map[what]string{
		crashes:           "replica %d crashes",
		restarts:          "replica %d starts again, with a list",
		relists:           "replica %d's watch is cut: it lists",
		entersListed:      "replica %d takes over record %d of its list",
		sees:              "replica %d sees the next event, of record %d",
		asks:              "replica %d is asked to create claim %d, and finds its block free",
		restores:          "replica %d is asked to create claim %d again, with its old record %d",
		binds:             "replica %d leads, reads claim %d as waiting, and finds its block free",
		finds:             "replica %d leads, reads claim %d as waiting, and finds record %d of it",
		creates:           "replica %d, for claim %d, creates record %d",
		createsUnanswered: "replica %d, for claim %d, creates record %d; the answer gets lost",
		createsLate:       "replica %d, for claim %d, creates record %d; the call times out on the way",
		createsNot:        "replica %d, for claim %d: the create call gets lost",
		answers:           "replica %d answers for claim %d with record %d",
		writesClaim:       "replica %d writes into claim %d that it has record %d",
		timesOut:          "replica %d, for claim %d, gives up waiting",
		adopts:            "replica %d, for claim %d, adopts record %d",
		asksHolder:        "replica %d asks whether claim %d has record %d",
		fences:            "replica %d writes to claim %d, to give up record %d",
		deletes:           "replica %d, for claim %d, deletes record %d",
		marks:             "replica %d, for claim %d, deletes record %d, but for the finalizer",
		letsGo:            "replica %d, for claim %d, removes the finalizer of record %d",
		abandons:          "replica %d gives up record %d, whose create call failed ambiguously",
		collects:          "replica %d checks whether record %d has a holder",
		listsHolders:      "replica %d lists all holders",
		arrivesLate:       "record %d arrives late",
		persists:          "the API server persists claim %d with record %d",
		refuses:           "the API server refuses the claim for which record %d was made",
		removesClaim:      "a client deletes claim %d",
	}
}

// String returns a description of the step.
func (t step) String() string {
	text := texts()[t.what]
	args := []any{t.who, t.on, t.also}
	return fmt.Sprintf(text, args[:strings.Count(text, "%")]...)
}

// next emits every state that one step leads to.
func (m *Model) next(s *state, emit func(step, state)) {
	to := func(t step, change func(n *state)) {
		n := *s
		change(&n)
		m.tidy(&n)
		emit(t, n)
	}
	for i := range s.stage {
		if m.symmetric && i > 0 && s.stage[i] == s.stage[i-1] {
			continue // the same happens to both
		}
		m.livesOn(s, i, to)
		switch r := &s.stage[i]; {
		case r.task.doing != nothing:
			m.goesOn(s, i, to)
		case r.life == up:
			m.begins(s, i, to)
		}
	}
	m.clusterActs(s, to)
}

type move func(step, func(*state))

// livesOn emits the events that can happen to a process and its view.
func (m *Model) livesOn(s *state, i int, to move) {
	r, who := &s.stage[i], uint8(i)
	if r.life == down {
		to(step{what: restarts, who: who}, func(n *state) {
			n.stage[i].life = loading
			m.list(n, i)
		})
		return
	}
	if s.crashes > 0 {
		to(step{what: crashes, who: who}, func(n *state) { n.crashes--; n.stage[i] = replica{} })
	}
	if r.listed != 0 {
		for rec := range uint8(maxRecords) {
			if r.listed&bit(rec) != 0 {
				to(step{entersListed, who, rec, 0}, func(n *state) { m.enterListed(n, i, rec) })
			}
		}
		return
	}
	if s.relists > 0 {
		to(step{what: relists, who: who}, func(n *state) { n.relists--; m.list(n, i) })
	}
	if r.at < s.logged {
		to(step{sees, who, s.log[r.at].record, 0}, func(n *state) { m.see(n, i) })
	}
}

// clusterActs emits the steps of the API server and its clients.
func (m *Model) clusterActs(s *state, to move) {
	for rec := range uint8(maxRecords) {
		r := &s.records[rec]
		if r.phase == late {
			to(step{what: arrivesLate, who: rec}, func(n *state) { m.arrive(n, rec) })
		}
		if !r.answered {
			continue
		}
		to(step{what: refuses, who: rec}, func(n *state) { n.records[rec].answered = false })
		if c := r.claim; s.claims[c].phase == absent {
			to(step{persists, c, rec, 0}, func(n *state) {
				n.records[rec].answered = false
				n.claims[c].phase, n.claims[c].record = live, rec
				n.change(c)
			})
		}
	}
	for c := range m.scenario.Claims {
		if s.claims[c].phase != absent {
			to(step{what: removesClaim, who: uint8(c)}, func(n *state) {
				n.claims[c].phase, n.claims[c].record = absent, 0
				n.change(uint8(c))
			})
		}
	}
}

// arrive creates a record, unless one of its name exists.
func (m *Model) arrive(s *state, rec uint8) bool {
	for other := range uint8(maxRecords) {
		if other != rec && s.records[other].phase == present && s.sameName(other, rec) {
			s.records[rec].phase = gone
			return false
		}
	}
	s.records[rec].phase = present
	s.write(rec, false)
	return true
}
