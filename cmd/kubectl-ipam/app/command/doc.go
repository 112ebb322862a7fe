// Package command holds what all commands of the kubectl plug-in have in common: the caller's
// environment, flags, the output as a table, JSON or YAML, exit codes, and the wait for objects.
package command
