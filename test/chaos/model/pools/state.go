package pools

import (
	"encoding/binary"
)

const (
	maxReplicas = 3
	maxHolders  = 6
	maxRecords  = 7
	maxLog      = 20
	maxVersion  = 7
	maxEdits    = 15
	maxLives    = 3
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
	record   uint8 // claims alone: by which it holds its block, when it is live
	requests uint8 // that are left
	// edit is the number of edits that a pool has had since it was made, and life the number of
	// times that it was made: its UID.
	edit, life uint8
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
	// block holds its addresses. A pool's own record has the name that follows from the pool's
	// when it is first, and another if it was made after an edit.
	block uint8
	first bool
	// uid is the holder's, of a pool's own record. 0: it was made before the pool, which is not
	// stored yet.
	uid uint8
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
			s.holders[p].phase, s.holders[p].life = live, 1
			s.records[made] = record{phase: present, holder: uint8(p), block: pool.Block, first: true, uid: 1, event: event{record: made}}
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

// block returns the block that a holder asks for when it is created.
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

// key holds a state in few bytes; two states have the same only if they are equal.
type key [2 + 2*maxHolders + 3*maxRecords + maxLog + 8*maxReplicas]byte

func (s *state) key() (k key) {
	k[0] = s.logged
	k[1] = s.crashes | s.relists<<2 | s.mistakes<<4
	at := k[2:]
	for i, h := range s.holders {
		at[2*i], at[2*i+1] = uint8(h.phase)|h.record<<2|h.requests<<5, h.edit|h.life<<4
	}
	at = at[2*maxHolders:]
	for i, r := range s.records {
		at[3*i], at[3*i+1], at[3*i+2] = uint8(r.phase)|r.holder<<2|flag(r.first)<<5|r.uid<<6, r.block, r.packed()
	}
	at = at[3*maxRecords:]
	for i, e := range s.log[:s.logged] {
		at[i] = e.packed()
	}
	at = at[maxLog:]
	for i := range s.stage {
		binary.LittleEndian.PutUint64(at[8*i:], s.stage[i].packed())
	}
	return k
}

func (e event) packed() uint8 {
	return e.record | e.version<<3 | flag(e.marked)<<6 | flag(e.deleted)<<7
}

// packed returns the replica as one number of 59 bits.
func (r *replica) packed() uint64 {
	n := uint64(flag(r.down))
	for _, f := range []struct{ value, bits uint8 }{
		{r.at, 5}, {r.seen, maxRecords}, {r.marked, maxRecords}, {r.confirmed, maxRecords},
		{r.versions[0], 3}, {r.versions[1], 3}, {r.versions[2], 3}, {r.versions[3], 3}, {r.versions[4], 3}, {r.versions[5], 3}, {r.versions[6], 3},
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
