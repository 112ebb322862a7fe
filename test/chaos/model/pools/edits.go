package pools

// anyBlock stands for the block of any own record.
const anyBlock = 0

// present returns the block that a pool has by its spec.
func (m *Model) present(s *state, pool uint8) uint8 {
	return m.spec(pool, s.holders[pool].edit)
}

// former returns the block that a pool had before its last edit, or the same.
func (m *Model) former(s *state, pool uint8) uint8 {
	return m.spec(pool, max(s.holders[pool].edit, 1)-1)
}

// spec returns the block of a pool after so many edits.
func (m *Model) spec(pool, edit uint8) uint8 {
	if edit == 0 {
		return m.scenario.Pools[pool].Block
	}
	return m.scenario.Pools[pool].Edits[edit-1]
}

// hasHad reports whether a pool has had a block by its spec, since it was made.
func (m *Model) hasHad(s *state, pool, block uint8) bool {
	for edit := range s.holders[pool].edit + 1 {
		if block&^m.spec(pool, edit) == 0 {
			return true
		}
	}
	return false
}

// records emits the own records that a replica may make after an edit, by its view. It may not
// know of the last edit yet.
func (m *Model) records(s *state, i int, to move) {
	for p := range uint8(len(m.scenario.Pools)) {
		h := &s.holders[p]
		if h.edit == 0 {
			continue
		}
		if h.phase == live {
			m.recordsBlock(s, i, step{records, uint8(i), p}, m.present(s, p), to)
		}
		if s.mistakes > 0 {
			m.recordsBlock(s, i, step{recordsFormer, uint8(i), p}, m.former(s, p), to)
		}
	}
}

// recordsBlock emits the record of a block for a pool, if the view has none, and shows it as free.
// The name of the record follows from the pool's UID and the block.
func (m *Model) recordsBlock(s *state, i int, by step, block uint8, to move) {
	r, h := &s.stage[i], by.on
	own := record{phase: present, holder: h, block: block, uid: s.holders[h].life}
	stored := uint8(0)
	for n := range uint8(maxRecords) {
		other := &s.records[n]
		if other.holder != h || other.block != block || other.uid != own.uid {
			continue
		}
		if r.seen&bit(n) != 0 {
			return
		}
		stored += flag(other.phase == present && !other.first)
	}
	if stored > flag(m.scenario.Twins) || m.rival(s, r, own, maxRecords) {
		return
	}
	to(by, func(next *state) {
		n := next.record(own)
		if by.what == recordsFormer {
			next.mistakes--
		}
		if m.rules&GiveUpMarked == 0 {
			next.stage[i].task = task{doing: awaiting, holder: h, record: n}
		}
	})
}

// exists reports whether the pool of an own record is live: the one with its UID.
func (m *Model) exists(s *state, n uint8) bool {
	h := &s.holders[s.records[n].holder]
	return h.phase == live && h.life == s.records[n].uid
}

// needed reports whether a view has a record in a pool that only this own record covers.
func (m *Model) needed(s *state, r *replica, n uint8) bool {
	return m.onlyCovers(s, n, r.seen, r.seen&r.confirmed&^r.marked)
}

// onlyCovers reports whether one of these records lies in a pool, in part in this own record of it,
// and the others that count do not cover it.
func (m *Model) onlyCovers(s *state, n, among, counting uint8) bool {
	own := &s.records[n]
	for in := range uint8(maxRecords) {
		r := &s.records[in]
		if among&bit(in) != 0 && m.home(r.holder) == own.holder+1 && r.block&own.block != 0 &&
			!m.covered(s, own.holder, r.block, counting&^bit(n)) {
			return true
		}
	}
	return false
}

// replaced reports whether a view shows that a pool has no use for an own record: it has another
// with its present block, or this one is excluded, and it has another.
func (m *Model) replaced(s *state, r *replica, n uint8) bool {
	wanted, isExcluded := m.present(s, s.records[n].holder), r.confirmed&bit(n) == 0 && m.rival(s, r, s.records[n], n)
	return m.has(s, r, n, wanted) || isExcluded && m.has(s, r, n, anyBlock)
}

// has reports whether a view shows another own record of the same pool and UID, with that block,
// that is confirmed and not marked. Of two with that block, the older one is the one to keep.
func (m *Model) has(s *state, r *replica, n, block uint8) bool {
	own, counts := &s.records[n], r.seen&^r.marked
	if m.rules&NewFirst != 0 {
		counts &= r.confirmed
	}
	for other := range uint8(maxRecords) {
		o := &s.records[other]
		if other != n && counts&bit(other) != 0 && o.holder == own.holder && o.uid == own.uid &&
			(block == anyBlock || o.block == block && (own.block != block || other < n)) {
			return true
		}
	}
	return false
}
