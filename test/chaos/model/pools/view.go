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
	if m.isPool(h) {
		return (r.confirmed&^r.marked)&bit(n) != 0
	}
	if !m.stands(s, r, n) {
		return false
	}
	return m.rules&LimitAtConfirm == 0 || m.within(s, r, h, 0)
}

// stands reports whether nothing excludes a record: no other one that overlaps it, and
// no lack of an own record of its pool that covers it.
func (m *Model) stands(s *state, r *replica, n uint8) bool {
	if m.rival(s, r, s.records[n], n) {
		return false
	}
	home := m.home(s.records[n].holder)
	return m.rules&OwnRecord == 0 || home == 0 || m.open(s, r, home-1, s.records[n].block)
}

// open reports whether a view has an own record of a pool that covers a block, so that the block
// can be confirmed.
func (m *Model) open(s *state, r *replica, pool, block uint8) bool {
	counts := r.seen &^ r.marked
	if m.rules&OwnConfirmed != 0 {
		counts &= r.confirmed
	}
	if m.rules&Coverage == 0 {
		block = 0
	}
	return m.covered(s, pool, block, counts)
}

// covered reports whether those of these records that are own records of the pool cover the whole
// block, together. There is one in any case.
func (m *Model) covered(s *state, pool, block, among uint8) bool {
	union, isAny := uint8(0), false
	for n := range uint8(maxRecords) {
		if r := &s.records[n]; among&bit(n) != 0 && r.holder == pool {
			union, isAny = union|r.block, true
		}
	}
	return isAny && block&^union == 0
}

// first returns the own record with the name that follows from the pool's, as a view has it.
func (m *Model) first(s *state, r *replica, pool uint8) (uint8, bool) {
	for n := range uint8(maxRecords) {
		if r.seen&bit(n) != 0 && s.records[n].holder == pool && s.records[n].first {
			return n, true
		}
	}
	return 0, false
}

// rival reports whether a view has a record, but for one, that overlaps another in the same home.
// Own records of a pool with one UID are not rivals.
func (m *Model) rival(s *state, r *replica, record record, but uint8) bool {
	for n := range uint8(maxRecords) {
		if n != but && r.seen&bit(n) != 0 && m.rivals(&s.records[n], &record) {
			return true
		}
	}
	return false
}

func (m *Model) rivals(a, b *record) bool {
	isSame := m.isPool(a.holder) && a.holder == b.holder && a.uid != 0 && a.uid == b.uid
	return a.block&b.block != 0 && m.home(a.holder) == m.home(b.holder) && !isSame
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
