package suite

import "testing"

// Step holds a subtest in a world of type W that builds on those before it.
type Step[W any] struct {
	Name string
	Run  func(W)
}

// Steps runs steps in their order until one fails, each in the world that in makes for it.
func Steps[W any](t *testing.T, in func(*testing.T) W, steps ...Step[W]) {
	t.Helper()
	for _, step := range steps {
		if !t.Run(step.Name, func(t *testing.T) { step.Run(in(t)) }) {
			return
		}
	}
}
