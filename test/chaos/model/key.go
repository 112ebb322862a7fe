package model

import "encoding/binary"

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
