// Package pools explores the parts of the protocol that package model leaves out: pools that go or
// are edited while blocks of them are being recorded, and limits of projects. It visits every
// interleaving of two or three replicas, an API server and its clients, within bounds that a
// Scenario states, and shares no code with the operator.
//
// # The model
//
//   - pools, roots and children, and claims; all blocks lie in one routing domain,
//     whose addresses are bits of a mask;
//   - records of both: a claim's lies in its pool, a pool's own in its home, which
//     is the routing domain or its parent. One log of events; each replica's view
//     follows it at its own pace, or lists everything at once. A scenario may bound
//     how many events a view is behind;
//   - a request, for a claim or a pool: hold, record, confirm, answer; the process
//     may pause, crash or give up at any step. A request for a claim may assume
//     that a pool exists which has gone, as a cache may be behind;
//   - the deletion of claims and pools. A pool goes when some view has no record in
//     it; or, if the scenario states it, by force, with blocks in it. It may be
//     made again under its own name, and takes over its former record if that
//     still exists;
//   - edits of a pool: its spec has another block at once. Any replica then records
//     a second own record of the pool, which has the pool's UID. Own records with one
//     UID are no rivals; each is a rival of all others in its home. Once a view has
//     the new record as confirmed, the other own records of the pool are released. A
//     new record that is not confirmed is released, too, if the pool has another one.
//     Of two records of one block, the older one stays. If the scenario states it,
//     replicas also write what follows from the block before the last edit. A client
//     may ask for any block that the pool has had since it was made;
//   - the release of a pool's record, by any replica at any time: it is marked, and
//     deleted when the view shows the mark, if each block of the pool that lies in it
//     is covered by other own records, confirmed and not marked. Each of its writes
//     has the version that the replica's view shows as its condition, and nothing is
//     kept between them: a process that pauses, or dies, between a decision and a
//     write is one whose view stands still in that time;
//   - limits, of a project in one pool or in all of them.
//
// # Assumptions
//
// A record for which nothing exists is taken as an orphan only when no request for it is under way
// (package model has that as the rule Grace). A pool's own record has the pool's UID as soon as the
// pool is stored. Claims' records are deleted in one step, and create calls are answered: package
// model has the rest.
//
// # Invariants
//
// In every state: no two live claims overlap, in any pools; each live claim has its record, and its
// block lies in an own record of its pool, which lies in one of the pool's parent, and so on; each
// live pool has an own record; no two live pools of one home overlap, nor do the confirmed own
// records of two pools; no project has more live claims than its limit. From every state one can be
// reached, without any deletion, creation or edit, in which nothing is under way, no record is
// marked, and every record has its claim; or is a pool's own, with its present block; or with a
// former one while that is excluded; or is the only one that covers some block.
//
// Each rule can be left out; then a shortest counterexample is found.
package pools
