// Package ui runs `kubectl ipam ui` as a process against a real API server with the operator: the
// contents of its stream, the requests that it refuses, and its survival of restarts.
package ui
