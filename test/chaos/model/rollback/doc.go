// Package rollback explores completely the behavior of two replicas when the store behind the API
// server goes back to a snapshot with its own revisions. It shares no code with packages kube and
// ledger.
//
// The store is its log: revision n is the nth entry, and the stored objects follow from the
// entries. Entries are records of one block, claims that name a record, and other objects, of which
// a watch of records shows the revision alone, as a bookmark. A replica records the block, waits
// until its own watch shows that without a rival, and lets the claim be stored. A record whose
// claim is gone is released.
//
// The store goes back once. That cuts all watches, and ends the requests under way: the API server
// is stopped for it. A replica acts on its old view until its watch is resumed, which it may be at
// any later time.
//
// Two things are left out. An event that comes again at its very revision after the store has gone
// back is taken for another one. And a replica that has listed, and seen no event since, is not put
// back behind that list: here all begin with the empty store.
//
// A write that is acknowledged below the revision of the view makes a replica list again earlier
// than its watch would. No invariant rests on it, so that it is not in here.
package rollback
