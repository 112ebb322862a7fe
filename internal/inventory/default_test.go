package inventory

import (
	"testing"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// defaultOf returns a class that is annotated as the default, of an age.
func defaultOf(name string, created int64, replaces string) ClassEntry {
	entry := defaultClass(name, ipam.IPv4, created)
	entry.Replaces = replaces
	return entry
}

func TestReplacingDefaultClassWins(t *testing.T) {
	for name, c := range map[string]struct {
		classes []ClassEntry
		want    string
	}{
		"there is none":                              {nil, ""},
		"the younger replaces the older":             {[]ClassEntry{defaultOf("a", 1, ""), defaultOf("b", 2, "a")}, "b"},
		"the older replaces the younger":             {[]ClassEntry{defaultOf("a", 2, ""), defaultOf("b", 1, "a")}, "b"},
		"a replaced class is not the default":        {[]ClassEntry{defaultOf("b", 2, "a")}, "b"},
		"one replaces a missing class":               {[]ClassEntry{defaultOf("a", 1, ""), defaultOf("b", 2, "none")}, "a"},
		"two replace the same":                       {[]ClassEntry{defaultOf("a", 1, ""), defaultOf("c", 3, "a"), defaultOf("b", 2, "a")}, "b"},
		"one replaces the one that replaces another": {[]ClassEntry{defaultOf("a", 1, ""), defaultOf("b", 2, "a"), defaultOf("c", 3, "b")}, "c"},
		"two replace each other":                     {[]ClassEntry{defaultOf("a", 2, "b"), defaultOf("b", 1, "a")}, "b"},
		"each of three replaces another":             {[]ClassEntry{defaultOf("a", 1, "c"), defaultOf("b", 2, "a"), defaultOf("c", 3, "b")}, "a"},
	} {
		got, ok := DefaultOf(c.classes)
		if got.Name != c.want || ok != (c.want != "") {
			t.Errorf("%s: got %q, want %q", name, got.Name, c.want)
		}
	}
}

// TestReplacedDefaultServesTenantsWithoutNewOne covers the time while both are annotated.
func TestReplacedDefaultServesTenantsWithoutNewOne(t *testing.T) {
	c := New(Options{Ledger: emptyLedger()})
	c.SetClass(defaultOf("a", 1, ""))
	c.SetClass(defaultOf("b", 2, "a"))
	got, ok := c.DefaultClass(ipam.IPv4, func(e ClassEntry) bool { return e.Name != "b" })
	if !ok || got.Name != "a" {
		t.Errorf("got %q, want a", got.Name)
	}
}

// TestDefaultSwitchReadLiveAlwaysHasDefault lets the view of before the switch read
// the objects that were stored after it, past the watch, in every possible order.
func TestDefaultSwitchReadLiveAlwaysHasDefault(t *testing.T) {
	before, old, next := build.Class("a").Default().Obj(), build.Class("a").Obj(), build.Class("b").Default().Obj()
	before.ResourceVersion, old.ResourceVersion, next.ResourceVersion = "1", "3", "2"
	for name, read := range map[string]func(*Catalog){
		"the old default alone, and then a list":              func(c *Catalog) { c.recordLiveClassAlone(old) },
		"a list, in which the class that is none comes first": func(*Catalog) {},
	} {
		t.Run(name, func(t *testing.T) {
			runInBubble(t, func(t *testing.T, c *Catalog) {
				c.onClassUpdate(before)
				defer c.Listen(func(Change) { hasDefault(t, c) })()
				read(c)
				hasDefault(t, c)
				if err := c.Refresh(t.Context(), newReader(t, 0, old, next), ipam.Request{}); err != nil {
					t.Fatal(err)
				}
				hasDefault(t, c)
				c.onClassUpdate(next)
				c.onClassUpdate(old)
				if got, _ := c.DefaultClass(ipam.IPv4, func(ClassEntry) bool { return true }); got.Name != "b" {
					t.Errorf("got %q once the watch shows both, want b", got.Name)
				}
			})
		})
	}
}

func hasDefault(t *testing.T, c *Catalog) {
	t.Helper()
	if _, ok := c.DefaultClass(ipam.IPv4, func(ClassEntry) bool { return true }); !ok {
		t.Error("there is no default class")
	}
}
