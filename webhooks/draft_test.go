package webhooks

import (
	"testing"
)

func TestFieldIsNotSetInNonObject(t *testing.T) {
	for name, edit := range map[string]func(*draft) error{
		"a field":    func(d *draft) error { return d.set("x", "spec", "cidr") },
		"one deeper": func(d *draft) error { return d.set("x", "spec", "poolRef", "name") },
		"an old one": func(d *draft) error {
			return d.restore(map[string]any{"spec": map[string]any{"cidr": "x"}}, "cidr")
		},
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
	if d.restore(map[string]any{"spec": "none"}, "cidr") == nil {
		t.Error("a field was kept of an object without one")
	}
}

func TestFieldIsSetInNullObject(t *testing.T) {
	d, err := newDraft([]byte(`{"spec":null}`))
	must(t, err)
	if err := d.set("x", "spec", "cidr"); err != nil || len(d.changes) != 2 || d.text("spec", "cidr") != "x" {
		t.Errorf("%v, %v, by %v", d.object, err, d.changes)
	}
}

func TestStatusIsPutBack(t *testing.T) {
	old := map[string]any{"status": map[string]any{"phase": "Bound"}}
	for sent, changes := range map[string]int{`{}`: 1, `{"status":{}}`: 1, `{"status":null}`: 1, `{"status":"none"}`: 1, `{"status":{"phase":"x"}}`: 1, `{"status":{"phase":"Bound"}}`: 0} {
		d, err := newDraft([]byte(sent))
		must(t, err)
		if err := d.putBack(old, "status"); err != nil || len(d.changes) != changes {
			t.Errorf("%s: %v, changes %v", sent, err, d.changes)
		}
	}
	d, err := newDraft([]byte(`{"status":"none"}`))
	must(t, err)
	if d.putBack(old, "status", "phase") == nil {
		t.Error("a field is put back into a text")
	}
}
