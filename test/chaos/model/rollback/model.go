package rollback

import (
	"fmt"
	"strings"

	"github.com/cadastre-dev/cadastre/test/chaos/model/explore"
)

// Rules holds the rules that are kept, one bit each.
type Rules uint8

// The rules about a store that goes back.
const (
	// Compare: a watch is resumed only if the revision of the store is not below the
	// highest that was seen.
	Compare Rules = 1 << iota
	// Again: a watch is resumed before the last event that was seen, and begins with it.
	Again
	// Forget: a record that was confirmed is judged again when the store has gone back.
	Forget
	// Ask: the API server is asked for the claim of a record before that is released,
	// although the deletion of the claim was seen.
	Ask
	// Running: a record is given to a claim only while the watch runs that has shown it.
	Running

	allRules = 1<<iota - 1
)

// String returns the names of the rules.
func (r Rules) String() string {
	var names []string
	for i, name := range []string{"compare revisions", "the last event comes again", "forget confirmations", "ask for the claim", "the watch runs"} {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Scenario holds the bounds of the exploration.
type Scenario struct {
	// Bounds of records, writes of other objects, and deletions of claims.
	Records, Others, Deletions uint8
}

const (
	replicas   = 2
	maxRecords = 3
	maxLog     = 14
	none       = maxRecords
)

type kind uint8

const (
	other kind = iota
	records
	releases
	stores  // the claim that names a record
	deletes // that claim
)

// entry represents an entry of the log. after means that it was written after the store had gone
// back.
type entry struct {
	kind   kind
	record uint8
	after  bool
}

func (e entry) isEvent() bool { return e.kind == records || e.kind == releases }

type replica struct {
	// at is the highest revision that was seen, and last that of the last event, with the event; 0
	// if there is none.
	at, last uint8
	event    entry
	// view, confirmed records, and records whose claim was seen to be deleted: a bit each.
	view, confirmed, gone uint8
	// cut means that the watch is to be resumed; unsure that the last event has to come again.
	cut, unsure bool
	// mine is the record that the replica has made, or none.
	mine uint8
}

type state struct {
	log      [maxLog]entry
	revision uint8
	// snapshot is its revision plus one; 0: there is none yet.
	snapshot                uint8
	back                    bool
	made, others, deletions uint8
	stage                   [replicas]replica
}

type step struct {
	text            string
	replica, record uint8
}

// String returns a description of the step.
func (t step) String() string {
	args := []any{t.replica, t.record}
	return fmt.Sprintf(t.text, args[:strings.Count(t.text, "%")]...)
}

// Model holds a scenario and the rules that it is played by.
type Model struct {
	scenario Scenario
	rules    Rules
}

// New returns the model of a scenario in which the rules left out are not kept.
func New(scenario Scenario, leftOut Rules) *Model {
	return &Model{scenario: scenario, rules: allRules &^ leftOut}
}

// Explore visits every state that can be reached, until one breaks an invariant, and makes
// sure that the model can become quiet from each.
func (m *Model) Explore() explore.Found {
	return explore.Completely[state, state, step](system{m}, "a view stays wrong, or a record is lost for good")
}

// system implements explore.System for a model.
type system struct{ *Model }

func bit(n uint8) uint8 { return 1 << n }

// stored returns the records that exist, and those that a claim names.
func (s *state) stored() (present, live uint8) {
	for _, e := range s.log[:s.revision] {
		switch e.kind {
		case records:
			present |= bit(e.record)
		case releases:
			present &^= bit(e.record)
		case stores:
			live |= bit(e.record)
		case deletes:
			live &^= bit(e.record)
		}
	}
	return present, live
}

func (s *state) write(k kind, record uint8) {
	s.log[s.revision] = entry{k, record, s.back}
	s.revision++
}

// Initial implements explore.System.
func (m system) Initial() state {
	var s state
	for i := range s.stage {
		s.stage[i].mine = none
	}
	return s
}

// Key implements explore.System.
func (system) Key(s *state) state { return *s }

// Expected implements explore.System.
func (system) Expected(t step) bool {
	return t.text != goesBack && t.text != claimGoes && t.text != writesOther
}

const (
	goesBack    = "the store goes back to the snapshot"
	claimGoes   = "a client deletes a claim"
	writesOther = "a client writes another object"
)

// Next implements explore.System.
func (m system) Next(s *state, emit func(step, state)) {
	to := func(t step, change func(*state)) {
		n := *s
		change(&n)
		emit(t, n)
	}
	m.cluster(s, to)
	if s.revision == maxLog {
		panic("the log is too short")
	}
	for i := range uint8(replicas) {
		r := &s.stage[i]
		if r.cut {
			to(step{"replica %d resumes its watch", i, 0}, func(n *state) { m.resume(n, &n.stage[i]) })
		} else if r.at < s.revision {
			to(step{"replica %d sees the next entry", i, 0}, func(n *state) { m.see(n, &n.stage[i]) })
		}
		m.acts(s, i, to)
	}
}

type move func(step, func(*state))

// cluster emits the steps of clients and of the store.
func (m *Model) cluster(s *state, to move) {
	if s.others < m.scenario.Others {
		to(step{text: writesOther}, func(n *state) { n.others++; n.write(other, none) })
	}
	if s.snapshot == 0 {
		to(step{text: "a snapshot is taken"}, func(n *state) { n.snapshot = n.revision + 1 })
	} else if !s.back && s.revision >= s.snapshot {
		to(step{text: goesBack}, func(n *state) {
			n.back, n.revision = true, n.snapshot-1
			clear(n.log[n.revision:])
			for i := range n.stage {
				n.stage[i].cut = true
			}
		})
	}
	_, live := s.stored()
	for rec := range uint8(maxRecords) {
		if live&bit(rec) != 0 && s.deletions < m.scenario.Deletions {
			to(step{text: claimGoes}, func(n *state) { n.deletions++; n.write(deletes, rec) })
		}
	}
}

// acts emits the steps that a replica may take by its view.
func (m *Model) acts(s *state, i uint8, to move) {
	r := &s.stage[i]
	if r.mine != none {
		m.finishes(s, i, to)
	} else if r.view == 0 && s.made < m.scenario.Records {
		to(step{"replica %d creates record %d", i, s.made}, func(n *state) {
			n.stage[i].mine = s.made
			n.made++
			n.write(records, s.made)
		})
	}
	present, live := s.stored()
	for rec := range uint8(maxRecords) {
		isAwaited := s.stage[0].mine == rec || s.stage[1].mine == rec
		isGone := live&bit(rec) == 0 || m.rules&Ask == 0 && r.gone&bit(rec) != 0
		if r.view&present&bit(rec) != 0 && !isAwaited && isGone {
			to(step{"replica %d releases record %d", i, rec}, func(n *state) { n.write(releases, rec) })
		}
	}
}

// finishes stores the claim of a replica's own record, or gives the record up.
func (m *Model) finishes(s *state, i uint8, to move) {
	r := &s.stage[i]
	present, live := s.stored()
	mine := bit(r.mine)
	isRunning := !r.cut && !r.unsure || m.rules&Running == 0
	if r.view&r.confirmed&mine == 0 {
		to(step{"replica %d gives record %d up", i, r.mine}, func(n *state) {
			if n.stage[i].mine = none; (present&^live)&mine != 0 {
				n.write(releases, r.mine)
			}
		})
	} else if isRunning && (present&^live&^r.gone)&mine != 0 {
		to(step{"replica %d has the claim of record %d stored", i, r.mine}, func(n *state) {
			n.write(stores, r.mine)
			n.stage[i].mine = none
		})
	}
}

// see applies the next entry. If the last event has to come again, and another entry has its
// revision, the store has gone back.
func (m *Model) see(s *state, r *replica) {
	if r.unsure {
		if s.log[r.last-1] != r.event {
			m.list(s, r)
			return
		}
		r.unsure, r.at = false, r.last
		return
	}
	e := s.log[r.at]
	r.at++
	switch e.kind {
	case records:
		r.view |= bit(e.record)
	case releases:
		r.view &^= bit(e.record)
		r.confirmed &^= bit(e.record)
	case deletes:
		r.gone |= bit(e.record)
	}
	if e.isEvent() {
		r.last, r.event = r.at, e
	}
	r.confirm()
}

// confirm confirms the only record in the view.
func (r *replica) confirm() {
	if r.view&(r.view-1) == 0 {
		r.confirmed |= r.view
	}
}

// list replaces the view with the stored state.
func (m *Model) list(s *state, r *replica) {
	present, _ := s.stored()
	r.view, r.confirmed, r.unsure = present, r.confirmed&present, false
	if m.rules&Forget != 0 {
		r.confirmed = 0
	}
	r.at, r.last, r.event = s.revision, 0, entry{}
	r.confirm()
}

// resume begins a watch.
func (m *Model) resume(s *state, r *replica) {
	r.cut = false
	if m.rules&Compare != 0 && s.revision < r.at {
		m.list(s, r)
		return
	}
	if m.rules&Again != 0 {
		if r.at, r.unsure = r.last, r.last > 0; r.unsure {
			r.at-- // before it
		}
	}
}

// Violation implements explore.System.
func (m system) Violation(s *state) string {
	present, live := s.stored()
	if live&^present != 0 {
		return "a live claim has no record"
	}
	if live&(live-1) != 0 {
		return "the block has two holders"
	}
	return ""
}

// Quiet implements explore.System.
func (m system) Quiet(s *state) bool {
	present, live := s.stored()
	for i := range s.stage {
		if r := &s.stage[i]; r.cut || r.at != s.revision || r.view != present || r.mine != none {
			return false
		}
	}
	return present == live
}
