package torture

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/cadastre-dev/cadastre/test/chaos/torture/witness"
)

// The functions of this file check the history of allocations and releases, as the clients that
// asked for them saw it, with porcupine: there must be an order of all of them, each between its
// call and its return, in which a block is allocated only while nothing that overlaps it is held.
//
// An operation is called when it was first requested, or, if that is later, when the witness was
// notified of an event that is known to be before it: of the record before an allocation, of the
// holder's last change before a release. It returns when the witness is notified of it. It is
// notified in the order of revisions, so that the order in which all was stored is always one of
// those that the intervals allow: an error that is found here was overlooked by the witness. This
// check judges the same, by other means.

// step is the input of an operation.
type step struct {
	allocation bool
	holder     string
	block      netip.Prefix
}

// register returns the model: the holder of each block. Its states are written as text, sorted, so
// that equal states are equal.
func register(start string) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return start },
		Step: func(state, input, _ any) (bool, any) {
			held, s := strings.Fields(state.(string)), input.(step)
			own := s.block.String() + "=" + s.holder
			at, has := slices.BinarySearch(held, own)
			if !s.allocation {
				return has, strings.Join(slices.Delete(held, at, at+b2i(has)), " ")
			}
			if slices.ContainsFunc(held, func(h string) bool { return overlaps(h, s.block) }) {
				return false, state
			}
			return true, strings.Join(slices.Insert(held, at, own), " ")
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprint(input) },
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func overlaps(held string, block netip.Prefix) bool {
	other, _, _ := strings.Cut(held, "=")
	return netip.MustParsePrefix(other).Overlaps(block)
}

// Linearizability holds the result of porcupine.
type Linearizability struct {
	Operations int `json:"operations"`
	Partitions int `json:"partitions"`
	Pieces     int `json:"pieces"`
	// Bad pieces are not linearizable, Unknown ones took too long. Either is a
	// failure.
	Bad     []string `json:"bad"`
	Unknown []string `json:"unknown"`
}

// pieceTimeout bounds porcupine's search in one piece.
const pieceTimeout = 20 * time.Second

// checkLinearizable checks each group of blocks that overlap by itself, and each of their histories
// in pieces, cut at times when no operation was under way: the blocks held then follow from the
// operations before, in any order of these.
func checkLinearizable(asked, releasing map[string]time.Time, lives []witness.Life) Linearizability {
	var result Linearizability
	groups := partition(operations(lives, asked, releasing))
	result.Partitions = len(groups)
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		history := groups[name]
		result.Operations += len(history)
		held := map[string]bool{}
		for _, piece := range pieces(history) {
			result.Pieces++
			model := register(strings.Join(slices.Sorted(maps.Keys(held)), " "))
			switch porcupine.CheckOperationsTimeout(model, piece, pieceTimeout) {
			case porcupine.Illegal:
				result.Bad = append(result.Bad, fmt.Sprintf("%s: %v", name, piece))
			case porcupine.Unknown:
				result.Unknown = append(result.Unknown, fmt.Sprintf("%s: %d operations", name, len(piece)))
			case porcupine.Ok:
			}
			for _, o := range piece {
				s := o.Input.(step)
				if own := s.block.String() + "=" + s.holder; s.allocation {
					held[own] = true
				} else {
					delete(held, own)
				}
			}
		}
	}
	return result
}

// located holds an operation, and its place.
type located struct {
	place string
	op    porcupine.Operation
}

// operations returns those of each life, in each place in which nothing else may overlap it: a
// claim's in the routing domain, among all claims of all pools, and in its pool, if that has
// children, whose CIDRs it must not overlap either; a pool's CIDR in its home.
func operations(lives []witness.Life, asked, releasing map[string]time.Time) []located {
	parents := map[string]bool{}
	for _, l := range lives {
		parents[l.Place] = parents[l.Place] || l.Domain == ""
	}
	var all []located
	for _, l := range lives {
		if l.Domain != "" {
			inPool := l.Place
			l.Place = "claims of " + l.Domain
			all = append(all, operationsOf(l, asked, releasing)...)
			l.Place = inPool
		}
		if parents[l.Place] {
			all = append(all, operationsOf(l, asked, releasing)...)
		}
	}
	return all
}

func operationsOf(l witness.Life, asked, releasing map[string]time.Time) []located {
	all := []located{{l.Place, porcupine.Operation{
		Input: step{true, l.UID, l.Block}, Return: l.Allocated.UnixNano(),
		Call: latest(l.Allocated, asked[l.Attempt], l.Recorded),
	}}}
	if !l.Released.IsZero() {
		all = append(all, located{l.Place, porcupine.Operation{
			Input: step{false, l.UID, l.Block}, Return: l.Released.UnixNano(),
			Call: latest(l.Released, releasing[l.UID], l.Changed),
		}})
	}
	return all
}

// latest returns the later one of two times, but not later than the end; the end if neither is
// known.
func latest(end, a, b time.Time) int64 {
	if b.After(a) {
		a = b
	}
	if a.IsZero() || a.After(end) {
		a = end
	}
	return a.UnixNano()
}

// partition groups operations by the largest block that contains theirs: blocks
// contain each other or have nothing in common.
func partition(all []located) map[string][]porcupine.Operation {
	blocks := map[string]map[netip.Prefix]bool{}
	for _, l := range all {
		if blocks[l.place] == nil {
			blocks[l.place] = map[netip.Prefix]bool{}
		}
		blocks[l.place][l.op.Input.(step).block] = true
	}
	groups := map[string][]porcupine.Operation{}
	for _, l := range all {
		largest := l.op.Input.(step).block
		for bits := largest.Bits(); bits >= 0; bits-- {
			if p := netip.PrefixFrom(largest.Addr(), bits).Masked(); blocks[l.place][p] {
				largest = p
			}
		}
		name := l.place + " " + largest.String()
		groups[name] = append(groups[name], l.op)
	}
	return groups
}

// pieces cuts a history at times when no operation is under way.
func pieces(history []porcupine.Operation) [][]porcupine.Operation {
	slices.SortStableFunc(history, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var cut [][]porcupine.Operation
	from, until := 0, int64(0)
	for i, o := range history {
		if i > from && o.Call > until {
			cut = append(cut, history[from:i])
			from = i
		}
		until = max(until, o.Return)
	}
	return append(cut, history[from:])
}
