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
			ownFirst(a.Pool, b.Pool),
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
func ByName(a, b Pool) int { return cmp.Or(ownFirst(a, b), cmp.Compare(a.Key.Name, b.Key.Name)) }

func ownFirst(a, b Pool) int {
	return -cmp.Compare(min(1, len(a.Key.Namespace)), min(1, len(b.Key.Namespace)))
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
