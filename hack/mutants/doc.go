// Package mutants changes the code in small ways, one at a time, and checks whether a test
// fails: a change that no test notices, a survivor, shows code that no test guards.
//
// All changes, the mutants, are compiled in at once, each behind a switch that an
// environment variable turns on, so that each test binary is built once. Every test first
// runs alone, to find the mutants that it reaches; a mutant is then tried only by the tests
// that reach it, the quickest first.
//
// The source stays as it is: go's -overlay lays the changed files over it.
package mutants
