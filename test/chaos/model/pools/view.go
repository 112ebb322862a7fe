package pools

// see delivers the next event to a replica.
func (m *Model) see(s *state, i int) {
	r := &s.stage[i]
	e := s.log[r.at]
	r.at++
	r.enter(e)
	m.confirmPools(s, r)
	m.resolve(s, r)
}

// list replaces the view with the state of the API server, in one step.
func (m *Model) list(s *state, i int) {
	r := &s.stage[i]
	before := r.seen
	r.at, r.seen, r.marked, r.versions = s.logged, 0, 0, [maxRecords]uint8{}
	for n := range s.records {
		if s.records[n].phase == present {
			r.enter(s.records[n].event)
		}
	}
	r.confirmed &= before & r.seen
	m.confirmPools(s, r)
	m.resolve(s, r)
}

// confirmPools confirms the own records of pools that nothing excludes, parents first; a confirmed
// record stays confirmed for as long as the view has it.
func (m *Model) confirmPools(s *state, r *replica) {
	for changed := true; changed; {
		changed = false
		for n := range uint8(maxRecords) {
			if r.seen&^r.confirmed&bit(n) != 0 && m.isPool(s.records[n].holder) && m.stands(s, r, n) {
				r.confirmed, changed = r.confirmed|bit(n), true
			}
		}
	}
}

func (r *replica) enter(e event) {
	r.seen &^= bit(e.record)
	r.marked &^= bit(e.record)
	r.versions[e.record] = 0
	if e.deleted {
		r.confirmed &^= bit(e.record)
		return
	}
	r.seen |= bit(e.record)
	r.versions[e.record] = e.version
	if e.marked {
		r.marked |= bit(e.record)
	}
}

// resolve decides which holder has the block, once the view shows the record that is awaited. A
// record that has changed since belongs to no holder: the collection of orphans finds it.
func (m *Model) resolve(s *state, r *replica) {
	t := &r.task
	if t.doing != awaiting {
		return
	}
	version := r.versions[t.record]
	switch {
	case r.seen&bit(t.record) == 0 || version < t.version:
	case version == t.version && m.confirms(s, r, t.record):
		t.doing = ours
	case version == t.version && m.isPool(t.holder) && m.rules&GiveUpMarked == 0:
		t.doing = deleting
	default:
		*t = task{}
	}
}

// confirms reports whether the block of a record is the holder's, by a view that shows the record.
func (m *Model) confirms(s *state, r *replica, n uint8) bool {
	h := s.records[n].holder
	if r.marked&bit(n) != 0 || !m.stands(s, r, n) {
		return false
	}
	return m.isPool(h) || m.rules&LimitAtConfirm == 0 || m.within(s, r, h, 0)
}

// stands reports whether nothing excludes a record: no other one that overlaps it, and
// no lack of its pool's own record.
func (m *Model) stands(s *state, r *replica, n uint8) bool {
	h := s.records[n].holder
	if m.rival(s, r, h, n) {
		return false
	}
	return m.rules&OwnRecord == 0 || m.home(h) == 0 || m.open(s, r, m.home(h)-1)
}

// open reports whether a view has a pool's own record, so that blocks of the pool can
// be confirmed.
func (m *Model) open(s *state, r *replica, pool uint8) bool {
	n, ok := m.own(s, r, pool)
	return ok && r.marked&bit(n) == 0 && (m.rules&OwnConfirmed == 0 || r.confirmed&bit(n) != 0)
}

// own returns a pool's own record as a view has it.
func (m *Model) own(s *state, r *replica, pool uint8) (uint8, bool) {
	for n := range uint8(maxRecords) {
		if r.seen&bit(n) != 0 && s.records[n].holder == pool {
			return n, true
		}
	}
	return 0, false
}

// rival reports whether a view has a record, but for one, that overlaps the block that a holder
// asks for, in the same home.
func (m *Model) rival(s *state, r *replica, h, but uint8) bool {
	for n := range uint8(maxRecords) {
		other := s.records[n].holder
		if n != but && r.seen&bit(n) != 0 && m.home(other) == m.home(h) && m.block(other)&m.block(h) != 0 {
			return true
		}
	}
	return false
}

// within reports whether a project is within its limits by a view, with so many more.
func (m *Model) within(s *state, r *replica, h, more uint8) bool {
	inPool, overall := more, more
	for n := range uint8(maxRecords) {
		other := s.records[n].holder
		if r.seen&bit(n) == 0 || m.isPool(other) || m.project(other) != m.project(h) {
			continue
		}
		overall++
		if m.home(other) == m.home(h) {
			inPool++
		}
	}
	return m.keeps(inPool, overall)
}

// keeps reports whether these numbers of claims, in a pool and overall, are within the limits.
func (m *Model) keeps(inPool, overall uint8) bool {
	return (m.scenario.PerPool == 0 || inPool <= m.scenario.PerPool) && (m.scenario.Overall == 0 || overall <= m.scenario.Overall)
}

// empty reports whether a view has no record in a pool.
func (m *Model) empty(s *state, r *replica, pool uint8) bool {
	for n := range uint8(maxRecords) {
		if r.seen&bit(n) != 0 && m.home(s.records[n].holder) == pool+1 {
			return false
		}
	}
	return true
}
