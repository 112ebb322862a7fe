// Package uibrowser opens the page of `kubectl ipam ui` in a headless Chromium, on a real control
// plane with the operator, and tests the views and actions of a person, and the limits of both.
package uibrowser
