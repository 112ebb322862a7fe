package pools

import "strings"

// Rules are the rules that are kept, one bit each.
type Rules uint8

// The rules about pools and limits.
const (
	// OwnRecord: a block is confirmed only where the view has the own record of its
	// pool, and not marked as releasing.
	OwnRecord Rules = 1 << iota
	// OwnConfirmed: that record counts only once it is confirmed itself, in the same view:
	// no record overlaps it in its home, and the parent's own record counts.
	OwnConfirmed
	// MarkFirst: a pool's own record is marked as releasing before it is deleted.
	MarkFirst
	// SeeMark: whether blocks are recorded in the pool is judged when the own view
	// shows the mark, not before.
	SeeMark
	// MarkVersion: the deletion is of the record as it was judged, not of one that
	// was unmarked or taken over since.
	MarkVersion
	// Unmark: the mark is taken off where a block is found, or the pool exists.
	Unmark
	// GiveUpMarked: a pool's own record that is not confirmed is given up in the same
	// two steps, as blocks may have been recorded in the pool.
	GiveUpMarked
	// LimitAtConfirm: a limit is judged when the view shows the record, not only
	// before it is made.
	LimitAtConfirm

	allRules = 1<<iota - 1
)

func ruleNames() []string {
	return []string{
		"the pool's own record", "the pool's own record is confirmed itself", "mark before deletion", "wait for the mark in one's own watch",
		"delete the version that was judged", "take the mark off", "give a pool's own record up as it is released", "limits at confirmation",
	}
}

// String names the rules.
func (r Rules) String() string {
	var names []string
	for i, name := range ruleNames() {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Scenario is what the exploration starts from, and its bounds.
type Scenario struct {
	Name   string
	Pools  []Pool
	Claims []Claim
	// Replicas is how many there are, 2 or 3.
	Replicas int
	// Crashes and Relists that happen at most, in all.
	Crashes, Relists uint8
	// Force lets pools be forced away with blocks in them.
	Force bool
	// Mistakes is how often a pool that exists is taken for gone, at most, and its
	// record marked.
	Mistakes uint8
	// PerPool and Overall limit the live claims of one project, in each pool and in
	// all of them; 0: no limit.
	PerPool, Overall uint8
}

// Pool is one of a scenario.
type Pool struct {
	// Block is its addresses, one bit each.
	Block uint8
	// Parent is the number of its parent plus one; 0: it is a root.
	Parent uint8
	// There says that it exists from the beginning, Stays that nobody deletes it.
	There, Stays bool
	// Requests is how often somebody creates it at most.
	Requests uint8
}

// Claim is one of a scenario.
type Claim struct {
	Pool    uint8
	Block   uint8
	Project uint8
	// Requests is how often a client creates it at most.
	Requests uint8
}

// The blocks: a whole one and a half of it.
const (
	Whole uint8 = 0b11
	Half  uint8 = 0b01
	Other uint8 = 0b10
)
