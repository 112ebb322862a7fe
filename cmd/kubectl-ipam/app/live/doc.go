// Package live is the register by watch: what register reads once, kept up to date with the
// caller's rights for as long as a command runs.
//
// A feed lists and watches one resource, with a Reflector of client-go: in all namespaces,
// or where the caller may not, in the caller's own. Rights that change later change what
// the feed reads. The feeds put what they read into one state, which knows what has
// changed since it was last published, and counts the blocks of each pool as they come and
// go.
//
// What has changed is published at most every fifty milliseconds to those who subscribe,
// as the messages of the stream that docs/ui.md describes. A subscriber that does not take
// what is published is cut off, and begins again. A register for questions is put together
// when it is asked for, and kept until something changes.
//
// A Live may be used concurrently. 100,000 IPAllocations take about 100 MiB: see
// TestARegisterOf100000RecordsFitsIntoMemory.
package live
