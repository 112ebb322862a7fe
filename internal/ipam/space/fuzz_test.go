package space

import (
	"encoding/binary"
	"testing"
)

// FuzzSpace reads the first byte as the pool and each four more as a call.
func FuzzSpace(f *testing.F) {
	f.Add([]byte{0, opUse, 9, 0, 1, opUse, 9, 0, 2, opRelease, 10, 0, 2})
	f.Add([]byte{1, opFindAndUse, 10, 0, 0, opFindAndUse, 10, 0, 1, opFindAndUse, 10, 0, 2})
	f.Add([]byte{2, opUse, 0, 0, 0, opRelease, 10, 2, 0, opFindFromAndUse, 10, 3, 255})
	f.Add([]byte{3, opUse, 255, 0, 0, opOverlaps, 255, 0, 0, opIsFree, 255, 0, 0})
	f.Add([]byte{4, opUse, 1, 0, 0, opUse, 1, 2, 0, opUsedIn, 0, 0, 0, opFreeBlocks, 3, 0, 0})
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) == 0 {
			return
		}
		pool := pools[int(input[0])%len(pools)]
		p := newPair(pool.cidr, pool.unit)
		rest := input[1:]
		for ; len(rest) >= 4; rest = rest[4:] {
			p.drive(t, input, call{rest[0], rest[1], binary.BigEndian.Uint16(rest[2:])})
		}
	})
}

// FuzzSpaceWithRanges reads the first byte as the pool, the second as the number of
// withheld ranges, each four more as one of these, and then as a call.
func FuzzSpaceWithRanges(f *testing.F) {
	f.Add([]byte{0, 1, 0, 0, 0, 9, opUse, 9, 0, 1, opUse, 9, 0, 2, opRelease, 10, 0, 2})
	f.Add([]byte{4, 2, 0, 0, 0, 0, 3, 255, 3, 255, opFindAndUse, 10, 0, 0, opRelease, 10, 0, 1})
	f.Add([]byte{2, 3, 0, 1, 0, 1, 0, 3, 0, 3, 0, 5, 0, 5, opUse, 0, 0, 0, opRelease, 0, 0, 0, opFreeBlocks, 9, 0, 0})
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) < 2 {
			return
		}
		pool, count, rest := pools[int(input[0])%len(pools)], int(input[1]), input[2:]
		var runs [][2]int
		for ; len(rest) >= 4 && len(runs) < count; rest = rest[4:] {
			runs = append(runs, [2]int{int(binary.BigEndian.Uint16(rest)), int(binary.BigEndian.Uint16(rest[2:]))})
		}
		p := newPair(pool.cidr, pool.unit, runs...)
		for ; len(rest) >= 4; rest = rest[4:] {
			p.drive(t, input, call{rest[0], rest[1], binary.BigEndian.Uint16(rest[2:])})
		}
	})
}
