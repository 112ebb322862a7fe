// Package command holds the common parts of all commands of the kubectl plug-in: the caller's
// environment, flags, the output as a table, JSON or YAML, exit codes, and the wait for objects.
package command
