// Package migrate takes over pools and addresses from another address manager, so that no
// address changes: the pools, claims and addresses of Metal3's IP address manager, and the pools
// and addresses in use that a CSV file or an export of NetBox lists.
//
// It first plans, without side effects: it turns its input into a list of pools to be made, of
// claims to be moved, and of problems, and prints the list as a table. It acts only after that,
// and only if it is asked to. It keeps all that it needs to go on after an interruption, or to
// roll back, in the cluster: in annotations of pools and claims, and in journals.
//
// The operator's own code judges the plan of a CSV file or of NetBox: it gets the existing
// objects and then each planned object. See register.judge.
//
// # Moving a claim
//
// Neither the poolRef of an IPAddressClaim nor that of an IPAddress can be changed, so both are
// deleted and created again under their names. During the move neither Metal3's provider nor the
// operator can hand the address to another claim:
//
//  1. Our pool is created with the annotation ipam.cadastre.dev/paused. It records the
//     addresses of IPAddresses that are created, and hands out nothing.
//  2. Metal3's pool is closed: it hands out nothing any more (see closeMetal3).
//  3. A journal, a ConfigMap, saves the present and the future form of claims and IPAddresses.
//  4. For each of them: the claim is deleted, without its finalizers, so that Metal3's provider
//     never sees its deletion; the claim is created with our pool; the IPAddress is deleted; the
//     IPAddress is created with our pool, and the operator records it. At each moment the
//     journal, and in addition the claim or the IPAddress, states the address.
//  5. 3 and 4 are repeated until nothing names Metal3's pool.
//  6. When an IPAllocation exists for every address, our pool is opened. Metal3's stays closed.
//
// An interrupted import goes on with the journals that it finds. A rollback is the same in the
// other direction.
package migrate
