package pools

import "math/bits"

// tidy brings states without a significant difference to one form.
func (m *Model) tidy(s *state) {
	first, referred := s.logged, uint8(0)
	for i := range s.stage {
		r := &s.stage[i]
		if r.down {
			continue
		}
		first = min(first, r.at)
		referred |= r.seen
		if r.task.doing != nothing {
			referred |= bit(r.task.record)
		}
		if r.task.doing == ours {
			r.task.version = 0
		}
	}
	copy(s.log[:], s.log[first:])
	s.logged -= first
	clear(s.log[s.logged:])
	for i := range s.stage {
		if !s.stage[i].down {
			s.stage[i].at -= first
		}
	}
	for _, e := range s.log[:s.logged] {
		referred |= bit(e.record)
	}
	for n := range s.records {
		if s.records[n].phase == deleted && referred&bit(uint8(n)) == 0 {
			s.records[n] = record{phase: deleted}
			if m.reuses {
				s.records[n] = record{}
			}
		}
		s.renumber(uint8(n))
	}
	if m.symmetric {
		m.order(s)
		m.sort(s)
	}
}

// renumber gives the versions of a record that something refers to the lowest numbers, in their
// order. Nothing depends on the others.
func (s *state) renumber(n uint8) {
	var refs [maxLog + 2*maxReplicas + 1]*uint8
	count, used := 0, uint16(0)
	refer := func(version *uint8) {
		refs[count], count, used = version, count+1, used|1<<*version
	}
	if s.records[n].phase == present {
		refer(&s.records[n].version)
	}
	for i := range s.log[:s.logged] {
		if e := &s.log[i]; e.record == n && !e.deleted {
			refer(&e.version)
		}
	}
	for i := range s.stage {
		r := &s.stage[i]
		if r.seen&bit(n) != 0 {
			refer(&r.versions[n])
		}
		if r.task.record == n && (r.task.doing == awaiting || r.task.doing == deleting) {
			refer(&r.task.version)
		}
	}
	if used&(used+1) == 0 {
		return
	}
	for _, version := range refs[:count] {
		*version = uint8(bits.OnesCount16(used & (1<<*version - 1)))
	}
}

// order numbers the records by their holders. A number is only a name.
func (m *Model) order(s *state) {
	var to [maxRecords]uint8 // the new number of each
	isOrdered, next := true, uint8(0)
	for h := range uint8(maxHolders) {
		for n, r := range s.records {
			if r.phase != unmade && r.holder == h {
				isOrdered = isOrdered && next == uint8(n)
				to[n], next = next, next+1
			}
		}
	}
	if isOrdered {
		return
	}
	before := s.records
	s.records = [maxRecords]record{}
	for n, r := range before {
		if r.phase != unmade {
			r.record = to[n]
			s.records[to[n]] = r
		}
	}
	for h := len(m.scenario.Pools); h < maxHolders; h++ {
		if s.holders[h].phase == live {
			s.holders[h].record = to[s.holders[h].record]
		}
	}
	for i := range s.log[:s.logged] {
		s.log[i].record = to[s.log[i].record]
	}
	for i := range s.stage {
		s.stage[i].order(to)
	}
}

// order gives the records new numbers in the view and the task.
func (r *replica) order(to [maxRecords]uint8) {
	old := *r
	r.seen, r.marked, r.confirmed, r.versions = 0, 0, 0, [maxRecords]uint8{}
	for n := range to {
		if old.seen&bit(uint8(n)) != 0 {
			r.seen |= bit(to[n])
			r.marked |= old.marked >> n & 1 << to[n]
			r.confirmed |= old.confirmed >> n & 1 << to[n]
			r.versions[to[n]] = old.versions[n]
		}
	}
	if r.task.doing != nothing {
		r.task.record = to[r.task.record]
	}
}

// sort puts the replicas, of which none is special, in order.
func (m *Model) sort(s *state) {
	for i := 1; i < m.scenario.Replicas; i++ {
		for j := i; j > 0 && s.stage[j].packed() < s.stage[j-1].packed(); j-- {
			s.stage[j], s.stage[j-1] = s.stage[j-1], s.stage[j]
		}
	}
}
