// Package ledger keeps the view: what this process has seen of every
// IPAllocation, as the space of every pool.
//
// The view is fed by one watch over all namespaces, one event at a time, in
// the order of the API server's revisions. That order is the lock that keeps
// two holders off one block. A replica that wants a block
//
//  1. finds one that is free in the view, and holds it there (Hold);
//  2. creates a record of it;
//  3. waits until the view shows that record (Confirm). The view is then
//     exactly the state at the revision at which the record was created: if no
//     other record overlaps the block, it is theirs, otherwise they give way.
//
// Of two records that overlap, one was created first:
//
//	revision   11          12          13
//	           A 10.0.0.0/24           B 10.0.0.0/25
//	           │                       │
//	A's maker: └ nothing overlaps: keep│
//	B's maker:                         └ A overlaps: give way
//
// After a list (Replace) the order of what it contains is unknown: there, an
// unconfirmed record that overlaps any other gives way.
//
// # Invariants
//
// Every record of the view is in use in its pool's space, until the watch
// shows that it is deleted; a deletionTimestamp frees nothing. Records are told
// apart by UID, so a late event of an old record touches no new one. Nothing is
// held before the first list is complete.
//
// # Concurrency and cost
//
// All methods may be called from any goroutine. There is one lock, never held
// while anything is waited for. Hold, an event and a confirmation cost O(address
// bits) and do not depend on the number of records.
package ledger
