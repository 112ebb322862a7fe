package pools

// releases emits the steps that an idle replica may take on records and pools that it sees.
func (m *Model) releases(s *state, i int, to move) {
	r, who := &s.stage[i], uint8(i)
	for p := range uint8(len(m.scenario.Pools)) {
		if s.holders[p].phase == terminating && m.empty(s, r, p) {
			to(step{finalizes, who, p}, func(n *state) { n.holders[p].phase = gone })
		}
	}
	for n := range uint8(maxRecords) {
		if r.seen&bit(n) == 0 {
			continue
		}
		if m.isPool(s.records[n].holder) {
			m.releasesPool(s, i, n, to)
			continue
		}
		h := &s.holders[s.records[n].holder]
		isHeld := h.phase == live && h.record == n
		if s.records[n].phase == present && !isHeld && !m.underWay(s, n) {
			to(step{collects, who, n}, func(next *state) { next.delete(n) })
		}
	}
}

// releasesPool emits the steps that a replica may take on a pool's own record. Each write has the
// version that the view shows as its condition. A process that pauses between its decision and its
// write is one that sees nothing new in that time; that the pool does not exist stays true, as to
// make it again takes another version of the record.
func (m *Model) releasesPool(s *state, i int, n uint8, to move) {
	r, who, version := &s.stage[i], uint8(i), s.stage[i].versions[n]
	write := func(what what, marked bool, also func(*state)) {
		if s.records[n].phase == present && s.records[n].version == version {
			to(step{what, who, n}, func(next *state) { next.update(n, version, marked); also(next) })
		}
	}
	if r.marked&bit(n) != 0 {
		m.looks(s, i, n, write, to)
		return
	}
	hurries := func(next *state) { m.hurries(next, i, n) }
	switch goes := !m.exists(s, n) || m.replaced(s, r, n); {
	case m.needed(s, r, n) || m.underWay(s, n):
	case goes && m.rules&MarkFirst == 0:
		m.deletes(s, i, n, to)
	case goes:
		write(marks, true, hurries)
	case s.mistakes > 0 && m.has(s, r, n, m.former(s, s.records[n].holder)):
		write(takesFormer, true, func(next *state) { next.mistakes--; hurries(next) })
	case s.mistakes > 0:
		write(mistakes, true, func(next *state) { next.mistakes--; hurries(next) })
	}
}

// looks emits the steps on a pool's own record that the view shows as marked: it is deleted, or its
// mark is removed. If the pool exists, a replica that does not know its present block may delete
// it, too, as long as another own record stays.
func (m *Model) looks(s *state, i int, n uint8, write func(what, bool, func(*state)), to move) {
	r, exists := &s.stage[i], m.exists(s, n)
	mayGo := !m.needed(s, r, n) && (!exists || m.rules&Replaced == 0 || m.has(s, r, n, anyBlock))
	if m.rules&Unmark != 0 && (!mayGo || exists && !m.replaced(s, r, n)) {
		write(unmarks, false, func(*state) {})
	}
	if mayGo {
		m.deletes(s, i, n, to)
	}
}

// deletes deletes a pool's record as the view shows it.
func (m *Model) deletes(s *state, i int, n uint8, to move) {
	as := &s.records[n]
	if as.phase == present && (m.rules&MarkVersion == 0 || as.version == s.stage[i].versions[n]) {
		to(step{deletes, uint8(i), n}, func(next *state) { next.delete(n) })
	}
}

// hurries continues after a mark with the view as it is, with SeeMark left out.
func (m *Model) hurries(s *state, i int, n uint8) {
	if m.rules&SeeMark == 0 {
		s.stage[i].task = task{doing: deleting, holder: s.records[n].holder, record: n, version: s.records[n].version}
	}
}

// underWay reports whether a request may yet be answered with a record.
func (m *Model) underWay(s *state, n uint8) bool {
	for i := range s.stage {
		if t := &s.stage[i].task; t.record == n && (t.doing == awaiting || t.doing == ours) {
			return true
		}
	}
	return false
}

// goesOn emits the next step of the task of a replica.
func (m *Model) goesOn(s *state, i int, to move) {
	t, who := s.stage[i].task, uint8(i)
	done := func(n *state) { n.stage[i].task = task{} }
	switch t.doing {
	case awaiting:
		to(step{timesOut, who, t.record}, done)
	case ours:
		to(step{answers, who, t.record}, func(n *state) {
			done(n)
			if h := &n.holders[t.holder]; h.phase != live && h.phase != terminating {
				m.stores(n, t)
			}
		})
		to(step{refuses, who, t.record}, done)
	case deleting:
		to(step{deletes, who, t.record}, func(n *state) {
			done(n)
			if r := &n.records[t.record]; r.phase == present && r.version == t.version {
				n.delete(t.record)
			}
		})
	}
}

// stores stores the holder of a task, which is answered. A pool's own record is stamped with its
// UID at the same time.
func (m *Model) stores(s *state, t task) {
	h := &s.holders[t.holder]
	h.phase = live
	if !m.isPool(t.holder) {
		h.record = t.record
		return
	}
	h.life, h.edit = h.life+1, 0
	s.records[t.record].uid = h.life
}

// update writes a record, on condition that it has that version.
func (s *state) update(n, version uint8, marked bool) bool {
	r := &s.records[n]
	if r.phase != present || r.version != version {
		return false
	}
	r.version, r.marked = r.version+1, marked
	s.write(n)
	return true
}

func (s *state) delete(n uint8) {
	r := &s.records[n]
	r.phase, r.deleted, r.marked, r.version = deleted, true, false, 0
	s.write(n)
}
