// Package ui runs `kubectl ipam ui` as a process against a real API server with the
// operator: what its stream says, whom it refuses, and that it survives restarts.
package ui
