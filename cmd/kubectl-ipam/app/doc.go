// Package app runs the commands of the kubectl plug-in, which are in the folders below it by
// groups.
//
// A command reads the objects that its caller can read, decides by them, and prints a report: a
// value that is the same for a person, as a table, and for a program, as JSON or YAML. In the
// cluster, it writes only as its name indicates. The exit code states how a command ended: see
// ExitCode.
package app
