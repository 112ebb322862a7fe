// Package explain implements the command that explains why a claim waits: it reads the same
// objects as the operator, and judges by the operator's own code.
package explain
