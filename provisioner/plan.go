package provisioner

import (
	"math/big"
	"slices"
)

// room holds the free space of a pool, or of one that is being made.
type room struct {
	available *big.Int
	// largest is the prefix length of the largest free block; more than bits if nothing is free.
	largest int
}

// newRoom returns the room of an empty pool.
func newRoom(length, bits int) room {
	return room{available: new(big.Int).Lsh(big.NewInt(1), uint(bits-length)), largest: length}
}

// need holds a number of blocks of one prefix length.
type need struct{ length, blocks int }

// unmet returns the needs for which the rooms are too small, the largest blocks first. It assumes that
// the free addresses of a room that has a free block of a length are free in such blocks: if they are
// not, some needs stay, and are unmet when the pool has no such block any more. It changes no argument.
func unmet(needs []need, rooms []room, bits int) []need {
	rooms, rest := slices.Clone(rooms), []need(nil)
	for i := range rooms {
		rooms[i].available = new(big.Int).Set(rooms[i].available)
	}
	needs = slices.SortedFunc(slices.Values(needs), func(a, b need) int { return a.length - b.length })
	for _, n := range needs {
		size := new(big.Int).Lsh(big.NewInt(1), uint(bits-n.length))
		for _, r := range rooms {
			if r.largest > n.length || n.blocks == 0 {
				continue
			}
			fits := new(big.Int).Div(r.available, size)
			if limit := big.NewInt(int64(n.blocks)); fits.Cmp(limit) > 0 {
				fits = limit
			}
			n.blocks -= int(fits.Int64())
			r.available.Sub(r.available, fits.Mul(fits, size))
		}
		if n.blocks > 0 {
			rest = append(rest, n)
		}
	}
	return rest
}
