// Package live keeps a register up to date by watches, with the caller's rights, for as long as
// a command runs. Package register reads the same data once.
//
// A feed lists and watches one resource, with a Reflector of client-go: in all namespaces, or,
// if the caller cannot read those, in the caller's namespace. If rights change later, the scope
// of the feed changes, too. The feeds put the objects that they read into one state, which
// knows the changes since it was last published.
//
// Changes are published at most every fifty milliseconds to the subscribers, as the messages of
// the stream that docs/ui.md describes. A subscriber that does not take the published changes
// is cut off, and begins again. A register for questions is put together when it is asked for,
// and kept until something changes.
//
// A Live can be used concurrently. 100,000 IPAllocations take about 70 MiB: see
// TestRegisterOf100000RecordsFitsInMemory.
package live
