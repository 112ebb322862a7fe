// Package story holds the verbs of the tests of controllers. A story runs on a real API server,
// without a manager: the test calls Reconcile itself, one pass at a time, and reads as a
// sequence of events:
//
//	e.Applied(build.Pool("p").CIDR("10.0.0.0/32").Obj(), build.Claim("team", "a").Pool("p").Obj())
//	e.Reconciled("a").Bound("10.0.0.0/32")
//
// Plane is the API server, and World the state of one story: the view of allocations, the
// catalog and the queue, fed by watches as in the operator. Every verb returns when these have
// been shown everything that is stored, so that the next pass decides with it: nothing is
// polled, and no test sleeps. A test adds the verbs for its own kind of object, such as Bound.
//
// Interrupted runs a story once for each moment at which another actor can come in between the
// calls that a pass makes. Failing runs it once for each call, which fails.
//
// The stories of a package are subtests of one test, which starts the API server once, and run
// one after the other. Each begins on an API server without objects of the operator, and takes
// its own away at the end, so that all may use the same names. Time is the story's clock,
// except for the clock of the API server, and for the time that the ledger waits for its watch.
package story
