package ipam

import (
	"cmp"
	"slices"
)

// Candidate is a pool with how much of it is in use: 0 to 1.
type Candidate struct {
	Pool     Pool
	Utilized float64
}

// Rank orders pools as they are to be tried. A namespace's own pools come before
// cluster-scoped ones; ties, and FirstFit, go by name.
func Rank(pools []Candidate, by Selection) []Pool {
	order := slices.Clone(pools)
	slices.SortFunc(order, func(a, b Candidate) int {
		return cmp.Or(
			ownFirst(a.Pool.Key, b.Pool.Key),
			direction(by)*cmp.Compare(a.Utilized, b.Utilized),
			cmp.Compare(a.Pool.Key.Name, b.Pool.Key.Name),
		)
	})
	ranked := make([]Pool, len(order))
	for i, c := range order {
		ranked[i] = c.Pool
	}
	return ranked
}

// ByName orders pools by name, a namespace's own before cluster-scoped ones.
func ByName(a, b Pool) int { return compareKeys(a.Key, b.Key) }

func compareKeys(a, b PoolKey) int { return cmp.Or(ownFirst(a, b), cmp.Compare(a.Name, b.Name)) }

func ownFirst(a, b PoolKey) int {
	return -cmp.Compare(min(1, len(a.Namespace)), min(1, len(b.Namespace)))
}

func direction(by Selection) int {
	switch by {
	case SelectLeastUtilized:
		return 1
	case SelectMostUtilized:
		return -1
	default:
		return 0
	}
}
