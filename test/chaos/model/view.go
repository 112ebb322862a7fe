package model

// see delivers the next event to a replica.
func (m *Model) see(s *state, i int) {
	r := &s.stage[i]
	e := s.log[r.at]
	r.at++
	if e.deleted {
		r.strike(e.record)
		return
	}
	m.enter(s, r, e)
	m.resolve(s, r, e.record)
}

// list replaces the view with the state of the API server: in one step, or in parts, with the
// missing records removed first and the rest recorded later.
func (m *Model) list(s *state, i int) {
	r := &s.stage[i]
	all := uint8(0)
	for n := range uint8(maxRecords) {
		if s.records[n].phase == present {
			all |= bit(n)
		}
	}
	r.at, r.listed = s.logged, all
	for n := range uint8(maxRecords) {
		if all&bit(n) == 0 {
			r.strike(n)
		}
	}
	if r.listed == 0 {
		r.life = up
	}
	if m.rules&AtomicReplace == 0 {
		return
	}
	r.life, r.listed = up, 0
	for n := range uint8(maxRecords) {
		if all&bit(n) != 0 {
			m.enter(s, r, s.asEvent(n))
		}
	}
	for n := range uint8(maxRecords) {
		if all&bit(n) != 0 {
			m.resolve(s, r, n)
		}
	}
}

// enterListed takes one record over from a list that is not taken over in one step. Events that
// arrive in that time wait.
func (m *Model) enterListed(s *state, i int, n uint8) {
	r := &s.stage[i]
	if r.listed &^= bit(n); r.listed == 0 {
		r.life = up
	}
	m.enter(s, r, s.asEvent(n))
	m.resolve(s, r, n)
}

// asEvent returns a record as a list shows it, or a watch when it has changed.
func (s *state) asEvent(n uint8) event {
	return event{terminating: s.records[n].terminating, record: n, version: s.records[n].version}
}

// strike removes a record from the view.
func (r *replica) strike(n uint8) {
	r.seen &^= bit(n)
	r.terminating &^= bit(n)
	r.versions[n] = 0
}

func (m *Model) enter(s *state, r *replica, e event) {
	n := e.record
	for other := range uint8(maxRecords) {
		if other != n && r.seen&bit(other) != 0 && s.sameName(other, n) {
			r.strike(other) // its deletion was missed
		}
	}
	r.strike(n)
	r.seen |= bit(n)
	r.versions[n] = e.version
	if e.terminating {
		r.terminating |= bit(n)
	}
}

// resolve reports the holder of the block to the task that waits for this record.
func (m *Model) resolve(s *state, r *replica, n uint8) {
	t := &r.task
	if t.doing != awaiting {
		return
	}
	byName := m.rules&OwnAnswer == 0 && t.bound && s.records[n].bound && s.records[n].claim == t.claim
	if t.record != n && !byName {
		return
	}
	t.record = n
	m.judge(s, r)
}

// judge decides by the view as it is.
func (m *Model) judge(s *state, r *replica) {
	t := &r.task
	t.doing = ours
	if m.rules&Confirm != 0 && m.rival(s, r, m.scenario.Claims[t.claim].Block, t.record) {
		t.doing = deleting
	}
}
