// Package uibrowser opens the page of `kubectl ipam ui` in a headless Chromium, on a real
// control plane with the operator: what a person sees, does, and may not see.
package uibrowser
