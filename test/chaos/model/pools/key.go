package pools

import "encoding/binary"

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
