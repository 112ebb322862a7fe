// Package ui measures the page of `kubectl ipam ui` in a headless Chromium, by how many blocks the
// register has: how soon it is drawn, its frames while the map moves, and its memory.
package ui
