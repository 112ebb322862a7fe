package register

import (
	"slices"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Held represents a block that a claim holds, and the routing domain of its pool.
type Held struct {
	*ipam.Record
	Domain ipam.PoolKey
}

// Pair holds two blocks of different routing domains that overlap; Inner lies in Outer.
type Pair struct{ Inner, Outer Held }

// Shared returns the blocks that overlap a block of another routing domain, which is allowed:
// each with the smallest such block that contains it. It sorts the blocks. Blocks contain each
// other or are apart, so the blocks that contain the present one form a stack.
func Shared(blocks []Held) []Pair {
	slices.SortFunc(blocks, func(a, b Held) int {
		if order := comparePrefixes(a.Block, b.Block); order != 0 {
			return order
		}
		return compareKeys(a.Domain, b.Domain)
	})
	var pairs []Pair
	var around []Held
	for _, held := range blocks {
		for len(around) > 0 && !around[len(around)-1].Block.Contains(held.Block.Addr()) {
			around = around[:len(around)-1]
		}
		for _, outer := range slices.Backward(around) {
			if outer.Domain != held.Domain {
				pairs = append(pairs, Pair{Inner: held, Outer: outer})
				break
			}
		}
		around = append(around, held)
	}
	return pairs
}
