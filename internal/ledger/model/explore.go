package model

import "fmt"

// Model is a scenario played by some rules.
type Model struct {
	scenario  Scenario
	rules     Rules
	symmetric bool
}

// New is the model of a scenario in which the rules left out are not kept. It panics
// where the scenario lets a record have more versions than a key can tell apart.
func New(scenario Scenario, leftOut Rules) *Model {
	if scenario.Adoptions+min(scenario.Halting, 1) > maxVersion {
		panic("more versions of a record than a key tells apart")
	}
	// A trace names replicas, so they are told apart where one is expected.
	return &Model{scenario: scenario, rules: allRules &^ leftOut, symmetric: leftOut == 0}
}

// Found is what an exploration came to.
type Found struct {
	States, Steps int
	// Violation is empty where the invariants hold; Trace leads to it.
	Violation string
	Trace     []string
}

// visit is how a state was first reached.
type visit struct {
	from  int32
	by    step
	quiet bool
}

// Explore looks at every state that can be reached, breadth first, until one
// violates an invariant. Where quiescence is asked for it then makes sure that it can
// be reached from every state, without the deletion of a claim.
func (m *Model) Explore(quiescence bool) Found {
	begin := m.initial()
	visits := []visit{{from: -1, quiet: m.quiet(&begin)}}
	index := map[key]int32{begin.key(): 0}
	work := []state{begin} // from state number at on
	var edges []edge
	found := Found{}
	for at := int32(0); len(work) > 0 && found.Violation == ""; at++ {
		current := work[0]
		work = work[1:]
		m.next(&current, func(by step, n state) {
			found.Steps++
			k := n.key()
			to, known := index[k]
			if !known {
				to = int32(len(visits))
				index[k] = to
				work, visits = append(work, n), append(visits, visit{from: at, by: by, quiet: m.quiet(&n)})
				if v := m.violation(&n); v != "" && found.Violation == "" {
					found.Violation, found.Trace = v, trace(visits, to)
				}
			}
			if quiescence && to != at && by.what != removesClaim {
				edges = append(edges, edge{at, to})
			}
		})
	}
	found.States = len(visits)
	if quiescence && found.Violation == "" {
		if stuck := stuck(visits, edges); stuck >= 0 {
			found.Violation, found.Trace = "a block is lost for good, or a claim waits for nothing", trace(visits, stuck)
		}
	}
	return found
}

func trace(visits []visit, at int32) []string {
	var steps []string
	for ; visits[at].from >= 0; at = visits[at].from {
		steps = append([]string{visits[at].by.String()}, steps...)
	}
	return steps
}

// violation says which invariant a state breaks, if any.
func (m *Model) violation(s *state) string {
	for i, c := range s.claims {
		if c.phase != live {
			continue
		}
		if r := s.records[c.record]; r.phase != present || r.terminating {
			return fmt.Sprintf("the record %d of the live claim %d is deleted", c.record, i)
		}
		for j, other := range s.claims[:i] {
			if other.phase == live && m.scenario.Claims[i].Block&m.scenario.Claims[j].Block != 0 {
				return fmt.Sprintf("the live claims %d and %d overlap", j, i)
			}
		}
	}
	for i := range s.stage {
		if r := &s.stage[i]; r.life == up && r.listed == 0 && r.at == s.logged && r.seen != presentIn(s) {
			return fmt.Sprintf("replica %d has seen everything, and its picture is wrong", i)
		}
	}
	return ""
}

func presentIn(s *state) uint8 {
	all := uint8(0)
	for n, r := range s.records {
		if r.phase == present {
			all |= bit(uint8(n))
		}
	}
	return all
}

// quiet says whether nothing is under way, every record has a holder, and nobody waits
// who could be served.
func (m *Model) quiet(s *state) bool {
	for _, r := range s.stage {
		if r.life != up || r.at != s.logged || r.listed != 0 || r.task.doing != nothing {
			return false
		}
	}
	for _, r := range s.records {
		if r.phase == late || r.answered {
			return false
		}
	}
	return presentIn(s) == held(s) && !m.waitsForNothing(s)
}

// waitsForNothing says whether there is a claim that waits although nobody has its
// block. Once all the records are made that the scenario allows, nobody can be helped.
func (m *Model) waitsForNothing(s *state) bool {
	taken, left := uint8(0), false
	for i, c := range s.claims {
		if c.phase == live {
			taken |= m.scenario.Claims[i].Block
		}
	}
	for _, r := range s.records[:m.scenario.Records] {
		left = left || r.phase == unmade
	}
	for i, c := range m.scenario.Claims {
		if left && s.claims[i].phase == waiting && c.Block&taken == 0 {
			return true
		}
	}
	return false
}

type edge struct{ from, to int32 }

// stuck is a state from which no quiet one can be reached, or -1.
func stuck(visits []visit, edges []edge) int32 {
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
