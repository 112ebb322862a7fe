package model

import (
	"encoding/binary"
)

const (
	replicas   = 3
	maxClaims  = 3
	maxRecords = 4
	maxLog     = 12
	maxVersion = 3
)

// state holds everything that the model stores. It is a value: steps make new ones.
type state struct {
	claims  [maxClaims]claim
	records [maxRecords]record
	// log has the events that some replica has not seen yet.
	log    [maxLog]event
	logged uint8
	stage  [replicas]replica
	// The rest of the scenario's bounds.
	crashes, relists, ambiguous, halting uint8
}

// claim represents a claim as the API server has it.
type claim struct {
	phase    claimPhase
	record   uint8 // that it names, when it is live
	requests uint8 // that are left
}

type claimPhase uint8

const (
	absent claimPhase = iota
	waiting
	live
)

// record represents a record as the API server has it. Its number is its UID.
type record struct {
	phase   recordPhase
	claim   uint8
	bound   bool // by a leader: its name is made from its claim
	version uint8
	// answered: the API server may persist a claim that names it.
	answered bool
	// terminating: it is deleted, but for the finalizer.
	terminating bool
}

type recordPhase uint8

const (
	unmade recordPhase = iota
	late               // its create call is still on the way
	present
	gone
)

// event represents an entry of the log.
type event struct {
	deleted, terminating bool
	record, version      uint8
}

// replica represents one process.
type replica struct {
	life lifePhase
	// at is the number of entries of the log that it has seen.
	at uint8
	// seen is its view, one bit a record, and versions the versions that it saw of each.
	seen     uint8
	versions [maxRecords]uint8
	// terminating has the records of seen that are deleted, but for the finalizer.
	terminating uint8
	// listed holds the records of a list that is being taken over and are not in the view yet.
	listed uint8
	// abandoned has records whose creation failed ambiguously.
	abandoned uint8
	task      task
}

type lifePhase uint8

const (
	down lifePhase = iota
	loading
	up
)

// task holds the work that a replica has begun.
type task struct {
	doing   doing
	claim   uint8
	record  uint8
	version uint8
	// bound: on behalf of a claim that waits, not of a request.
	bound bool
	// fresh: the claim has not changed since it was read.
	fresh bool
}

type doing uint8

const (
	nothing     doing = iota
	holding           // a block; to be recorded
	awaiting          // the record in the own watch
	ours              // to be answered with, or written into the claim
	adopting          // a record, by a write to it
	doubting          // whether a record has a holder: to be asked
	fencing           // a claim, before its record is given up
	deleting          // a record
	lettingGo         // of a record that it has deleted, but for the finalizer
	haveHolders       // with RecordsFirst left out: version has those that are held
)

// noRecord is a record that does not exist.
const noRecord = maxRecords

func bit(n uint8) uint8 { return 1 << n }

// initial returns the state that a scenario starts from: every replica is up.
func (m *Model) initial() state {
	s := state{crashes: m.scenario.Crashes, relists: m.scenario.Relists, ambiguous: m.scenario.Ambiguous, halting: m.scenario.Halting}
	for i, c := range m.scenario.Claims {
		s.claims[i].requests = c.Requests
		if c.Waits {
			s.claims[i].phase = waiting
		}
	}
	for i := range s.stage {
		s.stage[i].life = up
	}
	return s
}

// write logs a change of a record.
func (s *state) write(n uint8, deleted bool) {
	e := s.asEvent(n)
	if e.deleted = deleted; deleted {
		e.terminating = false
	}
	s.log[s.logged] = e
	s.logged++
}

// change marks that a claim has changed since any replica read it.
func (s *state) change(c uint8) {
	for i := range s.stage {
		if s.stage[i].task.claim == c {
			s.stage[i].task.fresh = false
		}
	}
}

// sameName reports whether two records have one name: those that leaders make for
// one claim.
func (s *state) sameName(a, b uint8) bool {
	return a == b || s.records[a].bound && s.records[b].bound && s.records[a].claim == s.records[b].claim
}

func (m *Model) block(s *state, n uint8) uint8 { return m.scenario.Claims[s.records[n].claim].Block }

// rival reports whether a view has a record that overlaps a block, other than
// one of the given record's name.
func (m *Model) rival(s *state, r *replica, block, than uint8) bool {
	for n := range uint8(maxRecords) {
		if r.seen&bit(n) != 0 && m.block(s, n)&block != 0 && (than == noRecord || !s.sameName(n, than)) {
			return true
		}
	}
	return false
}

// tidy brings states without a significant difference to one form.
func (m *Model) tidy(s *state) {
	first, referred := s.logged, uint8(0)
	for i := range s.stage {
		r := &s.stage[i]
		if r.life == down {
			continue
		}
		first = min(first, r.at)
		referred |= r.seen | r.listed | r.abandoned
		if d := r.task.doing; d != nothing && d != holding && d != haveHolders && r.task.record != noRecord {
			referred |= bit(r.task.record)
		}
	}
	copy(s.log[:], s.log[first:])
	s.logged -= first
	clear(s.log[s.logged:])
	for i := range s.stage {
		if s.stage[i].life != down {
			s.stage[i].at -= first
		}
	}
	for _, e := range s.log[:s.logged] {
		referred |= bit(e.record)
	}
	for n := range s.records {
		if s.records[n].phase == gone && referred&bit(uint8(n)) == 0 {
			s.records[n] = record{phase: gone}
		}
	}
	if m.symmetric {
		s.sort()
	}
}

// sort puts the replicas, of which none is special, in order.
func (s *state) sort() {
	for i := 1; i < replicas; i++ {
		for j := i; j > 0 && s.stage[j].packed() < s.stage[j-1].packed(); j-- {
			s.stage[j], s.stage[j-1] = s.stage[j-1], s.stage[j]
		}
	}
}

// key holds a state in few bytes; two states have the same only if they are equal.
type key [9 + maxLog + 6*replicas]byte

func (s *state) key() (k key) {
	for i, c := range s.claims {
		k[i] = uint8(c.phase) | c.record<<2 | c.requests<<4
	}
	for i, r := range s.records {
		k[3] |= flag(r.answered) << i
		k[4+i/2] |= (uint8(r.phase) | r.claim<<2) << (4 * (i % 2))
		k[6] |= flag(r.bound) << i
		k[7] |= r.version << (2 * i)
		k[8] |= flag(r.terminating) << i
	}
	k[3] |= s.ambiguous << 4
	k[8] |= s.halting << 4
	k[6] |= s.crashes << 4
	k[6] |= s.relists << 6
	at := k[9:]
	for i, e := range s.log[:s.logged] {
		at[i] = 0x80 | flag(e.deleted)<<6 | flag(e.terminating)<<5 | e.record<<2 | e.version
	}
	at = at[maxLog:]
	for i := range s.stage {
		var packed [8]byte
		binary.LittleEndian.PutUint64(packed[:], s.stage[i].packed())
		copy(at[6*i:], packed[:6])
	}
	return k
}

// packed returns the replica as one number of 48 bits.
func (r *replica) packed() uint64 {
	n := uint64(r.life)
	for _, f := range []struct{ value, bits uint8 }{
		{r.at, 4}, {r.seen, 4}, {r.terminating, 4}, {r.listed, 4}, {r.abandoned, 4},
		{r.versions[0], 2}, {r.versions[1], 2}, {r.versions[2], 2}, {r.versions[3], 2},
		{uint8(r.task.doing), 4}, {r.task.claim, 2}, {r.task.record, 3}, {r.task.version, 4},
		{flag(r.task.bound), 1}, {flag(r.task.fresh), 1},
	} {
		n = n<<f.bits | uint64(f.value)
	}
	return n
}

func flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
