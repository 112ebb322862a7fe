// Package explain holds the command that explains why a claim waits: it reads what the operator
// reads, and judges by the operator's own code.
package explain
