// Package allocator hands out blocks: it resolves a request to pools, finds a
// block, records and confirms it (package ledger), and releases what is no
// longer held. It is the only code that creates or deletes an IPAllocation.
//
// All methods of Allocator may be called concurrently, and on every replica:
// nothing here needs a leader.
package allocator
