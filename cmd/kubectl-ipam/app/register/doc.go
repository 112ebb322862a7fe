// Package register is the register of addresses as a person may read it: routing
// domains, pools, and the blocks that are held of them, put together from what the
// caller may list.
//
// Read lists, and keeps account of what the caller may not read. Build puts together
// what was listed, and is a pure function. A Register does not change once it is built
// and may be shared.
package register
