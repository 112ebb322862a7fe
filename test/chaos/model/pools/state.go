package pools

import (
	"encoding/binary"
)

const (
	maxReplicas = 3
	maxHolders  = 6
	maxRecords  = 6
	maxLog      = 20
	maxVersion  = 7
)

// state holds everything that the model stores. It is a value: steps make new ones.
type state struct {
	// holders are the pools, and then the claims, of the scenario.
	holders [maxHolders]holder
	records [maxRecords]record
	// log has the events that some replica has not seen yet.
	log    [maxLog]event
	logged uint8
	stage  [maxReplicas]replica
	// The rest of the scenario's bounds.
	crashes, relists, mistakes uint8
}

// holder represents a pool or a claim as the API server has it.
type holder struct {
	phase    holderPhase
	record   uint8 // by which it holds its block, when it is live
	requests uint8 // that are left
}

type holderPhase uint8

const (
	absent holderPhase = iota
	live
	terminating // pools alone
	gone        // pools alone: some caches may still have it
)

// record represents a record as the API server has it. Its number is its UID.
type record struct {
	phase  recordPhase
	holder uint8
	event
}

type recordPhase uint8

const (
	unmade recordPhase = iota
	present
	deleted
)

// event represents an entry of the log: the state of a record.
type event struct {
	record, version uint8
	marked, deleted bool
}

// replica represents one process.
type replica struct {
	down bool
	// at is the number of entries of the log that it has seen.
	at uint8
	// seen is its view, one bit a record; marked and versions are the marks and versions that it
	// saw of each. confirmed has the records of pools that nothing excluded, at some time since they
	// were seen first.
	seen, marked, confirmed uint8
	versions                [maxRecords]uint8
	task                    task
}

// task holds the work that a replica has begun.
type task struct {
	doing   doing
	holder  uint8
	record  uint8
	version uint8
}

type doing uint8

const (
	nothing  doing = iota
	awaiting       // the record in the own watch, at that version
	ours           // to be answered with
	deleting       // a pool's record, with SeeMark or GiveUpMarked left out
)

func bit(n uint8) uint8 { return 1 << n }

// initial returns the state that a scenario starts from: every replica is up and has seen
// everything.
func (m *Model) initial() state {
	s := state{crashes: m.scenario.Crashes, relists: m.scenario.Relists, mistakes: m.scenario.Mistakes}
	made := uint8(0)
	for p, pool := range m.scenario.Pools {
		s.holders[p].requests = pool.Requests
		if pool.There {
			s.holders[p].phase, s.holders[p].record = live, made
			s.records[made] = record{phase: present, holder: uint8(p), event: event{record: made}}
			made++
		}
	}
	for c, claim := range m.scenario.Claims {
		s.holders[m.claim(uint8(c))].requests = claim.Requests
	}
	for i := range s.stage {
		s.stage[i].down = i >= m.scenario.Replicas
		if !s.stage[i].down {
			s.stage[i].seen, s.stage[i].confirmed = bit(made)-1, bit(made)-1
		}
	}
	return s
}

// claim returns the number of a claim among the holders.
func (m *Model) claim(c uint8) uint8 { return uint8(len(m.scenario.Pools)) + c }

func (m *Model) holders() uint8 {
	return uint8(len(m.scenario.Pools) + len(m.scenario.Claims))
}

func (m *Model) isPool(h uint8) bool { return int(h) < len(m.scenario.Pools) }

// block returns the block that a holder asks for.
func (m *Model) block(h uint8) uint8 {
	if m.isPool(h) {
		return m.scenario.Pools[h].Block
	}
	return m.scenario.Claims[h-uint8(len(m.scenario.Pools))].Block
}

// home returns the pool in which a holder's record lies, plus one; 0: the routing domain.
func (m *Model) home(h uint8) uint8 {
	if m.isPool(h) {
		return m.scenario.Pools[h].Parent
	}
	return m.scenario.Claims[h-uint8(len(m.scenario.Pools))].Pool + 1
}

func (m *Model) project(h uint8) uint8 {
	return m.scenario.Claims[h-uint8(len(m.scenario.Pools))].Project
}

// write logs a change of a record.
func (s *state) write(n uint8) {
	if s.records[n].version > maxVersion {
		panic("more versions of a record than a key tells apart")
	}
	s.log[s.logged] = s.records[n].event
	s.logged++
}

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
		}
	}
	if m.symmetric {
		m.sort(s)
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

// key holds a state in few bytes; two states have the same only if they are equal.
type key [2 + maxHolders + 2*maxRecords + maxLog + 7*maxReplicas]byte

func (s *state) key() (k key) {
	k[0] = s.logged
	k[1] = s.crashes | s.relists<<2 | s.mistakes<<4
	at := k[2:]
	for i, h := range s.holders {
		at[i] = uint8(h.phase) | h.record<<2 | h.requests<<5
	}
	at = at[maxHolders:]
	for i, r := range s.records {
		at[2*i], at[2*i+1] = uint8(r.phase)|r.holder<<2, r.packed()
	}
	at = at[2*maxRecords:]
	for i, e := range s.log[:s.logged] {
		at[i] = e.packed()
	}
	at = at[maxLog:]
	for i := range s.stage {
		var packed [8]byte
		binary.LittleEndian.PutUint64(packed[:], s.stage[i].packed())
		copy(at[7*i:], packed[:7])
	}
	return k
}

func (e event) packed() uint8 {
	return e.record | e.version<<3 | flag(e.marked)<<6 | flag(e.deleted)<<7
}

// packed returns the replica as one number of 53 bits.
func (r *replica) packed() uint64 {
	n := uint64(flag(r.down))
	for _, f := range []struct{ value, bits uint8 }{
		{r.at, 5}, {r.seen, maxRecords}, {r.marked, maxRecords}, {r.confirmed, maxRecords},
		{r.versions[0], 3}, {r.versions[1], 3}, {r.versions[2], 3}, {r.versions[3], 3}, {r.versions[4], 3}, {r.versions[5], 3},
		{uint8(r.task.doing), 2}, {r.task.holder, 3}, {r.task.record, 3}, {r.task.version, 3},
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
