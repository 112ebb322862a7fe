// Package queue keeps who waits for a block, for what, and whose turn it is.
//
// A waiter is a claim or a child pool for which there was no room. What it would take,
// a prefix length or one very block, and the pools that could give it that, are resolved
// by the catalogue when the waiter joins and when a pool, a class or a namespace changes.
// The waiter is then in the line of each of these pools:
//
//	pool p   one block   10.0.0.7/32  a, c        those that ask for that block alone
//	         /24         b, f                     the others by length, each oldest first
//	         /32         d, e, g, ...
//
// A pool without line costs a create one look into a map, whatever waits elsewhere. In
// the pool's own line the first of each length is compared, and of those that ask for
// one block only those are checked whose block may have become free since.
//
// # Whose turn it is
//
// The oldest waiter for which there is room comes first; of the same age the one whose
// name comes first. Before them come those that ask for one block and asked before the
// pool opened: see Waiter. A newcomer, which is behind all, takes nothing from a pool
// while a waiter could be served from it, unless there is plenty for all.
//
// # Who keeps its place
//
// Only a waiter that fails for want of room does. One that cannot be served for another
// reason is parked: it keeps its age, but nobody waits behind it. The waiters of a
// namespace are bounded; those beyond the bound stand in no line until one of the
// others leaves.
//
// # Concurrency
//
// All methods may be called from any goroutine. The lines have one lock, under which
// nothing of another package is called but the Room that is an argument. It may be taken
// under the ledger's lock, never the other way round.
package queue
