package model

import "github.com/cadastre-dev/cadastre/test/chaos/model/explore"

// Rules holds the rules that are kept, one bit each.
type Rules uint16

// The rules of the protocol.
const (
	// Confirm: a block is handed out only when no other record overlaps it.
	Confirm Rules = 1 << iota
	// OwnWatch: that is judged when the view shows the record, not before.
	OwnWatch
	// AtomicReplace: a list becomes the view in one step.
	AtomicReplace
	// DeleteByUID: a deletion applies to the record that was judged, not to another of its name.
	DeleteByUID
	// DeleteByVersion: it applies to that record only as it was judged, not if another process has
	// adopted it since.
	DeleteByVersion
	// OwnAnswer: a record whose creation failed ambiguously is not ours.
	OwnAnswer
	// RecordsFirst: the collector sees a record first, and then looks for its holder.
	RecordsFirst
	// Grace: the collector leaves a record alone while the request that it was
	// made for may still be answered and persisted.
	Grace
	// AskHolder: a process that finds a record in doubt asks the API server whether its holder has
	// it, before giving it up.
	AskHolder
	// Fence: a record of a claim that waits is given up only after a write to
	// the claim, so that a leader that was paused cannot name it any more.
	Fence
	// Finish: a release that was cut short is finished, although the claim exists that
	// the record was made for.
	Finish
	// Collect: records without holder are collected.
	Collect
	// Undisputed: a record that another process made is taken over, by a claim that is restored or
	// gets its retained block again, and by leaders, only if nothing else overlaps it.
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

// String returns the names of the rules.
func (r Rules) String() string {
	return explore.Names(uint(r), ruleNames())
}

// Scenario holds the state that the exploration starts from, and its bounds.
type Scenario struct {
	Name   string
	Claims []Claim
	// Records is the highest number of records, 1 to 4.
	Records int
	// Crashes, Relists and Ambiguous bound these events, in all; Ambiguous counts create calls.
	Crashes, Relists, Ambiguous uint8
	// Halting bounds the releases whose two writes are separate steps: the deletion, and the
	// removal of the finalizer. The other releases are one step.
	Halting uint8
	// Adoptions bounds the adoptions of one record, 0 to 3; 0 to 2 if releases halt.
	Adoptions uint8
	// Restore lets a claim that was deleted be created again with the record
	// that it named.
	Restore bool
}

// Claim holds a claim of a scenario.
type Claim struct {
	// Block holds the addresses that it asks for, one bit each.
	Block uint8
	// Requests bounds how often a client creates it.
	Requests uint8
	// Waits means that it exists from the beginning, without a block.
	Waits bool
}

// The blocks: a whole one and a half of it.
const (
	Whole uint8 = 0b11
	Half  uint8 = 0b01
)
