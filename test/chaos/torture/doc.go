// Package torture runs real managers against a real API server and etcd, with clients that claim,
// release and claim again, while a nemesis kills, pauses, cuts and deletes; a witness judges the
// stored objects.
//
//	clients ──▶ kube-apiserver ──▶ balancer ──▶ managers
//	               ▲     │                        │
//	               │     └──▶ etcd ◀── witness    │
//	               └───── a proxy for each ◀──────┘
//
// All choices come from one seed, which is printed first. The decisions of the scheduling of
// processes are not repeated with it: the same seed makes the same clients ask for the same things
// and the nemesis do the same in the same order.
//
// A run has three parts: the storm, with clients and faults; the calm, with clients alone, in which
// no fault excuses anything; and the end, in which nothing happens until all is as required,
// waiting claims are served one after the other, and everything is given back.
//
// # Force
//
// Only the operator takes its finalizer off a record: a policy refuses it to all others. An
// administrator who does so under the operator's account has released the block by hand. The
// witness is notified before, and does not hold it against the operator if another holder gets the
// block; the claim that lost it has to report that it is in conflict, or to have its record again
// (see package witness).
//
// # Clients
//
// A client is an actor: see actors. To add one, write it in a separate file and list it there.
package torture
