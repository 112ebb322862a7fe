// Package app runs the commands of the kubectl plug-in, which are in the folders below it by groups.
//
// A command reads what its caller may read, decides with what it has read, and prints a
// report: a value that is the same for a person, as a table, and for a program, as JSON or
// YAML. It writes nothing in the cluster but what its name says. The exit
// code says how a command ended: see ExitCode.
package app
