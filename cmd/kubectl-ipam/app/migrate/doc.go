// Package migrate takes over what another address manager has handed out, so that no
// address changes: the pools, claims and addresses of Cluster API's in-cluster provider
// and of Metal3's, and what a CSV file or an export of NetBox says is in use.
//
// It first plans, without side effects: what is read becomes a list of pools to be made,
// of claims to be moved, and of problems, which is printed as a table. Only then, and only
// if it is asked to, it acts. What it has to know to go on after an interruption, or to
// roll back, is in the cluster: in annotations of pools and claims, and in journals.
//
// The plan of a CSV file or of NetBox is judged by the operator's own code, which is given what
// exists and then each planned object: see register.judge.
//
// # Moving a claim
//
// Neither the poolRef of an IPAddressClaim nor that of an IPAddress can be changed, so both
// are deleted and created again under their names. Meanwhile neither provider can hand the
// address to another claim:
//
//  1. Our pool is created with the annotation ipam.cadastre.dev/paused. It records the
//     addresses of IPAddresses that are created, and hands out nothing.
//  2. The other pool is closed: it hands out nothing any more (see provider.close).
//  3. A journal, a ConfigMap, saves claims and IPAddresses as they are and as they will be.
//  4. For each of them: the claim is deleted, without its finalizers, so that the other
//     provider never sees it being deleted; the claim is created with our pool; the
//     IPAddress is deleted; the IPAddress is created with our pool, and is recorded by the
//     operator. At each moment the journal, and in addition the claim or the IPAddress,
//     says which address it is.
//  5. 3 and 4 are repeated until nothing names the other pool.
//  6. When an IPAllocation is there for every address, our pool is opened. The other one
//     stays closed.
//
// An interrupted import goes on with the journals that it finds. A rollback is the same in
// the other direction.
package migrate
