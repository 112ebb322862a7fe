// Package explore visits every state that a model can reach, breadth first, and
// finds a shortest way to one that breaks an invariant, or from which the model
// can no longer become quiet. It uses one goroutine, and keeps the key of each
// state and each step between two states in memory.
package explore

import (
	"fmt"
	"strings"
)

// System represents a model: its states S, their keys K, which are equal only if the states are,
// and the steps T from one state to another.
type System[S any, K comparable, T fmt.Stringer] interface {
	Initial() S
	Key(*S) K
	// Next calls the function with every state that one step leads to.
	Next(*S, func(T, S))
	// Violation returns the invariant that the state breaks; empty: none.
	Violation(*S) string
	// Quiet reports whether the model may rest in the state.
	Quiet(*S) bool
	// Expected reports whether a step can be relied on for the model to become quiet: not one that
	// only a person takes.
	Expected(T) bool
}

// Found is the result of an exploration.
type Found struct {
	States, Steps int
	// Violation is empty if the invariants hold; Trace leads to it.
	Violation string
	Trace     []string
}

// visit holds how a state was first reached.
type visit[T any] struct {
	from  int32
	by    T
	quiet bool
}

// Completely visits every state, until one breaks an invariant. It then makes sure that from every
// state a quiet one can be reached by expected steps alone; if not, the violation is stuck. An
// empty stuck leaves that out.
func Completely[S any, K comparable, T fmt.Stringer](m System[S, K, T], stuck string) Found {
	current := m.Initial()
	after := current // one variable for all steps: the receiver of a method is allocated
	visits := []visit[T]{{from: -1, quiet: m.Quiet(&current)}}
	index := map[K]int32{m.Key(&current): 0}
	work := []S{current} // from state number at on
	var edges []edge
	found := Found{}
	for at := int32(0); len(work) > 0 && found.Violation == ""; at++ {
		current, work = work[0], work[1:]
		m.Next(&current, func(step T, n S) {
			found.Steps++
			after = n
			k := m.Key(&after)
			to, ok := index[k]
			if !ok {
				to = int32(len(visits))
				index[k] = to
				work, visits = append(work, after), append(visits, visit[T]{from: at, by: step, quiet: m.Quiet(&after)})
				if v := m.Violation(&after); v != "" && found.Violation == "" {
					found.Violation, found.Trace = v, trace(visits, to)
				}
			}
			if stuck != "" && to != at && m.Expected(step) {
				edges = append(edges, edge{at, to})
			}
		})
	}
	found.States = len(visits)
	if stuck != "" && found.Violation == "" {
		if at := restless(visits, edges); at >= 0 {
			found.Violation, found.Trace = stuck, trace(visits, at)
		}
	}
	return found
}

func trace[T fmt.Stringer](visits []visit[T], at int32) []string {
	var steps []string
	for ; visits[at].from >= 0; at = visits[at].from {
		steps = append([]string{visits[at].by.String()}, steps...)
	}
	return steps
}

type edge struct{ from, to int32 }

// restless returns a state from which no quiet one can be reached, or -1.
func restless[T any](visits []visit[T], edges []edge) int32 {
	begins := make([]int32, len(visits)+1) // of the edges into each state
	for _, e := range edges {
		begins[e.to+1]++
	}
	for i := range visits {
		begins[i+1] += begins[i]
	}
	into := make([]int32, len(edges))
	next := append([]int32(nil), begins...)
	for _, e := range edges {
		into[next[e.to]] = e.from
		next[e.to]++
	}
	reached := make([]bool, len(visits))
	var work []int32
	for i := range visits {
		if visits[i].quiet {
			reached[i] = true
			work = append(work, int32(i))
		}
	}
	for len(work) > 0 {
		at := work[len(work)-1]
		work = work[:len(work)-1]
		for _, from := range into[begins[at]:begins[at+1]] {
			if !reached[from] {
				reached[from] = true
				work = append(work, from)
			}
		}
	}
	for i, ok := range reached {
		if !ok {
			return int32(i)
		}
	}
	return -1
}

// Names returns the names of the bits that are set.
func Names(set uint, all []string) string {
	var names []string
	for i, name := range all {
		if set&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}
