package model

// begins emits the tasks that an idle replica may begin.
func (m *Model) begins(s *state, i int, to move) {
	r, who := &s.stage[i], uint8(i)
	for c := range uint8(len(m.scenario.Claims)) {
		m.beginsFor(s, i, c, to)
	}
	if m.rules&RecordsFirst == 0 {
		to(step{what: listsHolders, who: who}, func(n *state) {
			n.stage[i].task = task{doing: haveHolders, claim: maxClaims, version: held(n)}
		})
	}
	for rec := range uint8(maxRecords) {
		if r.seen&bit(rec) == 0 {
			continue
		}
		if r.abandoned&bit(rec) != 0 {
			to(step{abandons, who, rec, 0}, func(n *state) {
				n.stage[i].abandoned &^= bit(rec)
				n.stage[i].task = m.about(n, i, deleting, rec)
			})
		}
		if m.rules&RecordsFirst != 0 && m.rules&Collect != 0 && m.graceIsOver(s, rec) {
			to(step{collects, who, rec, 0}, func(n *state) { n.stage[i].task = m.about(n, i, doubting, rec) })
		}
	}
}

// beginsFor emits a request for a claim, or a leader's pass.
func (m *Model) beginsFor(s *state, i int, c uint8, to move) {
	r, who, block := &s.stage[i], uint8(i), m.scenario.Claims[c].Block
	if s.claims[c].phase == absent && s.claims[c].requests > 0 {
		if !m.rival(s, r, block, noRecord) {
			to(step{asks, who, c, 0}, func(n *state) {
				n.claims[c].requests--
				n.stage[i].task = task{doing: holding, claim: c}
			})
		}
		for rec := range uint8(maxRecords) {
			if m.restorable(s, r, c, rec) {
				to(step{restores, who, c, rec}, func(n *state) {
					n.claims[c].requests--
					m.takeOver(n, i, rec)
				})
			}
		}
	}
	if !m.scenario.Claims[c].Waits {
		return
	}
	// A leader's cache may be behind: it may read a claim as waiting that no longer waits.
	fresh := s.claims[c].phase == waiting
	for rec := range uint8(maxRecords) {
		if r.holds(rec) && s.records[rec].claim == c && s.records[rec].bound {
			to(step{finds, who, c, rec}, func(n *state) {
				m.takeOver(n, i, rec)
				n.stage[i].task.fresh = fresh
			})
			return
		}
	}
	if !m.rival(s, r, block, noRecord) {
		to(step{binds, who, c, 0}, func(n *state) {
			n.stage[i].task = task{doing: holding, claim: c, bound: true, fresh: fresh}
		})
	}
}

// restorable reports whether a claim that is created again may have a record that was made for it:
// the one that it named, or one that is retained. One that has a rival is left to the collector,
// even if a claim names it.
func (m *Model) restorable(s *state, r *replica, c, rec uint8) bool {
	return m.scenario.Restore && r.holds(rec) && s.records[rec].claim == c && !s.records[rec].bound &&
		(m.rules&Undisputed == 0 || !m.rival(s, r, m.block(s, rec), rec))
}

// holds reports whether the view has a record, and not as one that is being deleted.
func (r *replica) holds(rec uint8) bool { return r.seen&^r.terminating&bit(rec) != 0 }

// about returns a task that concerns a record as the view shows it.
func (m *Model) about(s *state, i int, doing doing, rec uint8) task {
	return task{doing: doing, claim: s.records[rec].claim, record: rec, version: s.stage[i].versions[rec], bound: s.records[rec].bound}
}

// takeOver begins the adoption of a record, or gives it up if it has a rival.
func (m *Model) takeOver(s *state, i int, rec uint8) {
	next := adopting
	if m.rules&Undisputed != 0 && m.rival(s, &s.stage[i], m.block(s, rec), rec) {
		next = doubting
		if m.rules&AskHolder == 0 {
			next = deleting
		}
	}
	s.stage[i].task = m.about(s, i, next, rec)
}

// graceIsOver reports whether no request is under way that may yet have the record
// persisted. Of leaders nothing is assumed.
func (m *Model) graceIsOver(s *state, rec uint8) bool {
	if m.rules&Grace == 0 {
		return true
	}
	if s.records[rec].answered {
		return false
	}
	for i := range s.stage {
		t := &s.stage[i].task
		underWay := t.doing == awaiting || t.doing == ours || t.doing == adopting
		if underWay && !t.bound && t.record == rec {
			return false
		}
	}
	return true
}

// held returns the records that live claims name.
func held(s *state) uint8 {
	all := uint8(0)
	for _, c := range s.claims {
		if c.phase == live {
			all |= bit(c.record)
		}
	}
	return all
}

// goesOn emits the next step of the task of a replica.
func (m *Model) goesOn(s *state, i int, to move) {
	t, who := s.stage[i].task, uint8(i)
	done := func(n *state) { n.stage[i].task = task{} }
	switch t.doing {
	case holding:
		m.records(s, i, to)
	case awaiting:
		to(step{timesOut, who, t.claim, 0}, func(n *state) {
			if done(n); t.record != noRecord {
				n.stage[i].task = task{doing: deleting, claim: t.claim, record: t.record, bound: t.bound}
			}
		})
	case ours:
		m.handsOut(i, t, to)
	case adopting:
		to(step{adopts, who, t.claim, t.record}, func(n *state) { m.adopt(n, i) })
		to(step{timesOut, who, t.claim, 0}, done)
	case doubting:
		to(step{asksHolder, who, t.claim, t.record}, func(n *state) { m.ask(n, i) })
	case fencing:
		to(step{fences, who, t.claim, t.record}, func(n *state) {
			if !t.fresh {
				done(n)
				return
			}
			n.change(t.claim)
			n.stage[i].task.doing = deleting
		})
	case deleting:
		to(step{deletes, who, t.claim, t.record}, func(n *state) {
			done(n)
			m.remove(n, t)
		})
		if s.halting > 0 && m.meets(s, t, t.record) && !s.records[t.record].terminating {
			to(step{marks, who, t.claim, t.record}, func(n *state) {
				n.halting--
				r := &n.records[t.record]
				r.version, r.terminating = r.version+1, true
				n.write(t.record, false)
				n.stage[i].task = task{doing: lettingGo, claim: t.claim, record: t.record}
			})
		}
	case lettingGo:
		to(step{letsGo, who, t.claim, t.record}, func(n *state) {
			done(n)
			m.remove(n, t)
		})
		to(step{timesOut, who, t.claim, 0}, done)
	case haveHolders:
		m.collectsBy(s, i, to)
		to(step{what: timesOut, who: who, on: t.claim}, done)
	}
}

// records emits the create call, and its possible results.
func (m *Model) records(s *state, i int, to move) {
	t, who := s.stage[i].task, uint8(i)
	rec := uint8(0)
	for rec < uint8(m.scenario.Records) && s.records[rec].phase != unmade {
		rec++
	}
	to(step{createsNot, who, t.claim, 0}, func(n *state) { m.createIsLost(n, i, noRecord) })
	if rec == uint8(m.scenario.Records) {
		return
	}
	made := record{phase: late, claim: t.claim, bound: t.bound}
	to(step{creates, who, t.claim, rec}, func(n *state) {
		n.records[rec] = made
		if !m.arrive(n, rec) {
			n.stage[i].task = task{}
			return
		}
		n.stage[i].task.doing, n.stage[i].task.record = awaiting, rec
		if m.rules&Confirm == 0 || m.rules&OwnWatch == 0 {
			m.judge(n, &n.stage[i])
		}
	})
	if s.ambiguous == 0 {
		return
	}
	to(step{createsUnanswered, who, t.claim, rec}, func(n *state) {
		n.ambiguous--
		n.records[rec] = made
		m.createIsLost(n, i, rec)
		m.arrive(n, rec)
	})
	to(step{createsLate, who, t.claim, rec}, func(n *state) {
		n.ambiguous--
		n.records[rec] = made
		m.createIsLost(n, i, rec)
	})
}

// createIsLost handles a create call that failed ambiguously, in the replica.
func (m *Model) createIsLost(s *state, i int, rec uint8) {
	r := &s.stage[i]
	if m.rules&OwnAnswer == 0 && (r.task.bound || rec != noRecord) {
		r.task.doing, r.task.record = awaiting, rec
		return
	}
	r.task = task{}
	if rec != noRecord {
		r.abandoned |= bit(rec)
	}
}

// handsOut emits the answer to a request, or the write to a claim that waits.
func (m *Model) handsOut(i int, t task, to move) {
	who := uint8(i)
	if t.bound {
		to(step{writesClaim, who, t.claim, t.record}, func(n *state) {
			if n.stage[i].task = (task{}); t.fresh {
				n.claims[t.claim].phase, n.claims[t.claim].record = live, t.record
				n.change(t.claim)
			}
		})
		return
	}
	to(step{answers, who, t.claim, t.record}, func(n *state) {
		n.stage[i].task = task{}
		n.records[t.record].answered = true
	})
	to(step{timesOut, who, t.claim, 0}, func(n *state) {
		if n.stage[i].task.doing = deleting; t.version > 0 {
			n.stage[i].task = task{} // it was adopted: left to the collection of orphans
		}
	})
}

// adopt writes to a record, on condition that it is as it was seen.
func (m *Model) adopt(s *state, i int) {
	t := &s.stage[i].task
	r := &s.records[t.record]
	if r.phase != present || r.version != t.version || r.version == m.scenario.Adoptions {
		*t = task{}
		return
	}
	r.version++
	s.write(t.record, false)
	t.doing, t.version = ours, r.version
}

// ask reads the holder of a record from the API server.
func (m *Model) ask(s *state, i int) {
	t := &s.stage[i].task
	c := &s.claims[t.claim]
	switch {
	case c.phase == live && c.record == t.record:
		*t = task{}
	case c.phase == waiting && t.bound && m.rules&Finish == 0 && s.stage[i].terminating&bit(t.record) != 0:
		*t = task{}
	case c.phase == waiting && t.bound && m.rules&Fence != 0:
		t.doing, t.fresh = fencing, true
	default:
		t.doing = deleting
	}
}

// collectsBy deletes records that had no holder when holders were listed.
func (m *Model) collectsBy(s *state, i int, to move) {
	r := &s.stage[i]
	for rec := range uint8(maxRecords) {
		if r.seen&bit(rec) != 0 && r.task.version&bit(rec) == 0 && m.graceIsOver(s, rec) {
			to(step{collects, uint8(i), rec, 0}, func(n *state) { n.stage[i].task = m.about(n, i, deleting, rec) })
		}
	}
}

// remove deletes a record, with the conditions that the rules demand.
func (m *Model) remove(s *state, t task) {
	for n := range uint8(maxRecords) {
		if m.meets(s, t, n) {
			s.records[n].phase = gone
			s.write(n, true)
		}
	}
}

// meets reports whether a deletion applies to a record. The removal of the finalizer, which comes
// after, does not carry the version.
func (m *Model) meets(s *state, t task, n uint8) bool {
	r := &s.records[n]
	switch {
	case r.phase != present,
		n != t.record && (m.rules&DeleteByUID != 0 || !s.sameName(n, t.record)),
		n == t.record && m.rules&DeleteByUID != 0 && m.rules&DeleteByVersion != 0 && t.doing != lettingGo && r.version != t.version:
		return false
	}
	return true
}
