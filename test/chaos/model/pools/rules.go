package pools

import "github.com/cadastre-dev/cadastre/test/chaos/model/explore"

// Rules holds the rules that are kept, one bit each.
type Rules uint16

// The rules about pools and limits.
const (
	// OwnRecord: a block is confirmed only if the view has the own record of its pool, and not
	// marked as releasing.
	OwnRecord Rules = 1 << iota
	// OwnConfirmed: that record counts only once it is confirmed itself, in the same view:
	// no record overlaps it in its home, and the parent's own record counts.
	OwnConfirmed
	// MarkFirst: a pool's own record is marked as releasing before it is deleted.
	MarkFirst
	// SeeMark: whether blocks are recorded in the pool is judged when the own view
	// shows the mark, not before.
	SeeMark
	// MarkVersion: the deletion is of the record as it was judged, not of one that was unmarked or
	// taken over since.
	MarkVersion
	// Unmark: the mark is taken off if a block is found, or the pool exists.
	Unmark
	// GiveUpMarked: a pool's own record that is not confirmed is given up in the same
	// two steps, as blocks may have been recorded in the pool.
	GiveUpMarked
	// LimitAtConfirm: a limit is judged when the view shows the record, not only before it is made.
	LimitAtConfirm
	// Coverage: a pool's own records count only for blocks that they cover, together: after an edit, a
	// pool has several.
	Coverage
	// NewFirst: another own record of the pool counts in place of one only once it is confirmed.
	NewFirst
	// Replaced: an own record of a pool that exists is deleted only if the view shows another one,
	// confirmed and not marked.
	Replaced

	allRules = 1<<iota - 1
)

func ruleNames() []string {
	return []string{
		"the pool's own record", "the pool's own record is confirmed itself", "mark before deletion", "wait for the mark in one's own watch",
		"delete the version that was judged", "take the mark off", "give a pool's own record up as it is released", "limits at confirmation",
		"own records of the pool that cover the block",
		"the new own record is confirmed before the old one is marked", "an own record is deleted only if another stays",
	}
}

// String returns the names of the rules.
func (r Rules) String() string {
	return explore.Names(uint(r), ruleNames())
}

// Scenario holds the state that the exploration starts from, and its bounds.
type Scenario struct {
	Name   string
	Pools  []Pool
	Claims []Claim
	// Replicas is the number of replicas, 2 or 3.
	Replicas int
	// Crashes and Relists bound these events, in all.
	Crashes, Relists uint8
	// Force lets pools with blocks in them be removed by force.
	Force bool
	// Mistakes bounds how often a pool that exists is taken for gone, and its record marked; and the
	// writes that follow from the block that a pool had before its last edit.
	Mistakes uint8
	// PerPool and Overall limit the live claims of one project, in each pool and in
	// all of them; 0: no limit.
	PerPool, Overall uint8
	// Lag bounds how many events a view may be behind; 0: as many as there are.
	Lag uint8
	// Twins lets two replicas make an own record each after an edit: their names differ.
	Twins bool
}

// Pool holds a pool of a scenario.
type Pool struct {
	// Block holds its addresses, one bit each.
	Block uint8
	// Parent is the number of its parent plus one; 0: it is a root.
	Parent uint8
	// There means that it exists from the beginning, Stays that it is never deleted.
	There, Stays bool
	// Requests bounds how often it is created.
	Requests uint8
	// Edits holds the blocks that clients give it, one after the other, each time that it is made.
	Edits []uint8
}

// Claim holds a claim of a scenario.
type Claim struct {
	Pool    uint8
	Block   uint8
	Project uint8
	// Requests bounds how often a client creates it.
	Requests uint8
}

// The blocks: a whole one and a half of it.
const (
	Whole uint8 = 0b11
	Half  uint8 = 0b01
	Other uint8 = 0b10
)
