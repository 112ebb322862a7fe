// Package story has the verbs of the tests of controllers. A story runs on
// a real API server, without a manager: the test calls Reconcile itself, one pass at a
// time, and reads as what happens:
//
//	e.Applied(build.Pool("p").CIDR("10.0.0.0/32").Obj(), build.Claim("team", "a").Pool("p").Obj())
//	e.Reconciled("a").Bound("10.0.0.0/32")
//
// Plane is the API server, and World what one story has: the view of
// allocations, the catalogue and the queue, fed by watches as in the operator. Every verb
// returns when these have been shown all that is stored, so that the next pass decides
// with it: nothing is polled, and nobody sleeps. A test adds what its own kind of object
// says, such as Bound.
//
// Interrupted tells a story once for each moment at which another actor can come in between
// the calls that a pass makes. Failing tells it once for each call, which fails.
//
// The stories of a package are subtests of one test, which starts the API server once, and
// run one after the other. Each begins on an API server
// without objects of the operator, and takes its own away at the end, so that all may
// use the same names. Time is the story's clock, but for that of the API server, and for
// how long the ledger waits for its watch.
package story
