package webhooks

import (
	"testing"
)

func TestAFieldIsNotFilledInWhereThereIsNoObjectForIt(t *testing.T) {
	for name, edit := range map[string]func(*draft) error{
		"a field":     func(d *draft) error { return d.set("x", "spec", "cidr") },
		"one deeper":  func(d *draft) error { return d.set("x", "spec", "poolRef", "name") },
		"an old one":  func(d *draft) error { return d.keep(map[string]any{"spec": map[string]any{"cidr": "x"}}, "cidr") },
		"a finalizer": func(d *draft) error { return d.addFinalizer(nil, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			d, err := newDraft([]byte(`{"spec":"none","metadata":"none"}`))
			must(t, err)
			if edit(d) == nil || len(d.changes) > 0 {
				t.Errorf("it was filled in: %v", d.changes)
			}
		})
	}
	d, err := newDraft([]byte(`{"spec":{}}`))
	must(t, err)
	if d.keep(map[string]any{"spec": "none"}, "cidr") == nil {
		t.Error("a field was kept of what had none")
	}
}
