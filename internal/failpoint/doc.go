// Package failpoint breaks the promises of the register on purpose, one at a
// time, so that the torture harness can be seen to notice. It does so only in a
// binary built with the tag failpoints, where the environment variable
// CADASTRE_FAILPOINT says which. Without the tag every function is a constant
// false, and the compiler leaves out what depends on it.
package failpoint
