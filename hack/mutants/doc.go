// Package mutants changes the code in small ways, one at a time, and sees whether a test
// fails: a change that none notices, a survivor, is code that nothing guards.
//
// All changes, the mutants, are compiled in at once, each behind a switch that an
// environment variable turns on, so that each test binary is built once. Every test is run
// alone first, to know which mutants it reaches; a mutant is then given to those alone, the
// quickest first.
//
// Nothing is written into the source: the changed files are laid over it by go's -overlay.
package mutants
