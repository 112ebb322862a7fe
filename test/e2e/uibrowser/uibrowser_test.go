package uibrowser

import (
	"testing"
)

// TestUIBrowser looks at the page as a person does, step by step, in one world.
func TestUIBrowser(t *testing.T) {
	w := start(t)
	for i, step := range []struct {
		name string
		run  func(*world, *testing.T)
	}{
		{"an address space without pools", (*world).empty},
		{"the page loads, and draws the map", (*world).loads},
		{"an address is found, and its holder", (*world).finds},
		{"an allocation and a release are followed", (*world).follows},
		{"a claim waits, and is served", (*world).waits},
		{"the table matches the map", (*world).tells},
		{"a link keeps the view", (*world).links},
		{"the list is exported", (*world).exports},
		{"free space is claimed from its row", (*world).claimsFree},
		{"everything can be done with keys", (*world).keys},
		{"less movement, themes, a phone, paper", (*world).looks},
		{"all can be read, and axe-core finds nothing serious", (*world).legible},
		{"only requests with the token, and from no other page", (*world).refuses},
		{"a tenant sees what it may read", (*world).tenants},
		{"the API server is started again", (*world).restarts},
		{"pictures", (*world).pictures},
	} {
		passed := t.Run(step.name, func(t *testing.T) {
			here := *w
			here.World = w.For(t)
			step.run(&here, t)
		})
		if !passed && i < 2 {
			return // all others need the results of these two
		}
	}
}
