package model

import "strings"

// Rules are the rules that are kept, one bit each.
type Rules uint16

// The rules of the protocol.
const (
	// Confirm: a block is handed out only when no other record overlaps it.
	Confirm Rules = 1 << iota
	// OwnWatch: that is judged when the view shows the record, not before.
	OwnWatch
	// AtomicReplace: a list becomes the view in one step.
	AtomicReplace
	// DeleteByUID: a deletion meets the record that was judged, not another of
	// its name.
	DeleteByUID
	// DeleteByVersion: it meets that record only as it was judged, not when
	// somebody has adopted it since.
	DeleteByVersion
	// OwnAnswer: a record whose creation failed ambiguously is not ours.
	OwnAnswer
	// RecordsFirst: the collector sees a record first, and then looks for its
	// holder.
	RecordsFirst
	// Grace: the collector leaves a record alone while the request that it was
	// made for may still be answered and persisted.
	Grace
	// AskHolder: who finds a record in doubt asks the API server whether its
	// holder has it, before giving it up.
	AskHolder
	// Fence: a record of a claim that waits is given up only after a write to
	// the claim, so that a leader that was paused cannot name it any more.
	Fence
	// Finish: a release that was cut short is finished, although the claim exists that
	// the record was made for.
	Finish
	// Collect: records without holder are looked for.
	Collect
	// Undisputed: a record that somebody else made is taken over, by a claim that is
	// restored or is to have its retained block again, and by leaders, only where nothing
	// else overlaps it.
	Undisputed

	allRules = 1<<iota - 1
)

func ruleNames() []string {
	return []string{
		"confirm", "wait for one's own watch", "atomic Replace", "delete by UID", "delete by version",
		"only an acknowledged create is ours", "records first, holders second", "grace for requests under way",
		"ask the holder before giving up", "fence the claim before giving up",
		"finish a release that was cut short", "collect orphans", "take over only what nothing overlaps",
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
	Claims []Claim
	// Records is how many are made at most, 1 to 4.
	Records int
	// Crashes, Relists and Ambiguous creates that happen at most, in all.
	Crashes, Relists, Ambiguous uint8
	// Releases whose two writes are steps of their own, at most: the deletion, and the
	// removal of the finalizer. The other releases are one step.
	Halting uint8
	// Adoptions of one record at most, 0 to 3; 0 to 2 where releases halt.
	Adoptions uint8
	// Restore lets a claim that was deleted be created again with the record
	// that it named.
	Restore bool
}

// Claim is one of a scenario.
type Claim struct {
	// Block is the addresses that it asks for, one bit each.
	Block uint8
	// Requests is how often a client creates it at most.
	Requests uint8
	// Waits says that it is there from the beginning, without a block.
	Waits bool
}

// The blocks: a whole one and a half of it.
const (
	Whole uint8 = 0b11
	Half  uint8 = 0b01
)
