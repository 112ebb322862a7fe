// Package allocator hands out blocks: it finds a block in the pools to which a request
// was resolved (package catalogue), records and confirms it (package ledger), adopts what
// is recorded already, and releases what is no longer held. It is the only code that
// creates or deletes an IPAllocation.
//
// All methods of Allocator may be called concurrently, and on every replica:
// nothing here needs a leader.
package allocator
