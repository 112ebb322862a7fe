// Package register holds the register of addresses as a person can read it: routing
// domains, pools, and the blocks that are held of them, built from the objects that the
// caller can list.
//
// Read lists the objects, and notes the kinds of objects that the caller cannot list. Build
// builds the register from the listed objects, and is a pure function. A Register does not
// change after it is built and can be shared.
package register
