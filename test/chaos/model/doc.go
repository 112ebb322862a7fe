// Package model explores the record-confirm protocol completely: every interleaving of three
// replicas, an API server and its clients, within bounds that a Scenario states. It shares no code
// with package ledger; it specifies how that package, the allocator and the collection of orphans
// have to behave.
//
// The model contains:
//
//   - records with a UID (here: their number), a name, a version, a claim and a
//     block; the blocks are of two sizes, and overlap;
//   - one log of events; each replica's view follows it at its own pace, so
//     every delay of a watch is an interleaving. A relist takes the whole state;
//   - a webhook's request: hold, create, confirm, answer; then the API server
//     persists the claim or refuses it. The caller may have gone at any step;
//   - a leader's binding of a claim that waits: the same with a name that is made
//     from the claim, then a write to the claim on condition that it is as it was
//     read. Any replica may believe that it leads, and read the claim from a
//     cache that is behind;
//   - adoption of a record that another process made, by a leader or for a claim
//     that was restored, or that gets its retained block again;
//   - create calls that fail ambiguously: the record exists, or arrives later,
//     or never;
//   - crashes, and the deletion of claims;
//   - releases that halt between their two writes, the deletion and the removal of
//     the finalizer, and may go on later;
//   - the collection of orphans, by any replica at any time.
//
// A process that is paused, for however long, is one that takes no step for a while: nothing here
// depends on time, with one exception. A webhook's request is over, one way or the other, before
// the grace period of its record is: the API server gives it five seconds, and the whole request a
// minute.
//
// In every state no two live claims overlap, and each has its record. From every state one can be
// reached, without the deletion of a claim, in which nothing is under way, every record has a live
// claim, and a claim that waits does so for a live claim, as long as the scenario lets records be
// made: no block is lost for good, and no claim waits for nothing.
//
// Each Rule can be left out; then a shortest counterexample is found.
package model
