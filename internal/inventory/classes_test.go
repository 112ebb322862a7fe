package inventory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

func TestClusterPoolFollowsCluster(t *testing.T) {
	c := New(Options{Ledger: emptyLedger()})
	labels := map[string]string{v1alpha1.LabelCluster: "prod"}
	own := ipam.Pool{Key: ipam.LocalPoolNamed("red", "own"), Labels: labels, Classes: []string{"gold"}}
	pools := map[string]ipam.Pool{
		"own":                 own,
		"of another Cluster":  {Key: ipam.LocalPoolNamed("red", "other"), Labels: map[string]string{v1alpha1.LabelCluster: "test"}},
		"of no Cluster":       {Key: ipam.LocalPoolNamed("red", "none")},
		"of another's prod":   {Key: ipam.LocalPoolNamed("blue", "own"), Labels: labels},
		"of the whole system": {Key: ipam.PoolNamed("own"), Labels: labels},
	}
	for _, pool := range pools {
		c.SetPool(pool)
	}
	var changes []Change
	c.Listen(func(e Change) { changes = append(changes, e) })
	prod := ipam.Name{Namespace: "red", Name: "prod"}
	const (
		paused = "the Cluster prod to which it belongs is paused: set its spec.paused to false, or use another pool"
		none   = "there is no Cluster prod, to which it belongs: create it, or take the label " + v1alpha1.LabelCluster + " off"
	)
	for _, step := range []struct {
		what     string
		do       func()
		why      string
		changes  int
		unpaused bool
	}{
		{"Clusters are not watched", func() {}, "", 0, false},
		{"they are known from now on", c.TrackClusters, none, 0, false},
		{"it comes", func() { c.SetCluster(prod, false) }, "", 1, true},
		{"it is seen again", func() { c.SetCluster(prod, false) }, "", 0, false},
		{"they are known, again", c.TrackClusters, "", 0, false},
		{"it is paused", func() { c.SetCluster(prod, true) }, paused, 1, false},
		{"it is seen again, paused", func() { c.SetCluster(prod, true) }, paused, 0, false},
		{"it goes on", func() { c.SetCluster(prod, false) }, "", 1, true},
		{"it goes", func() { c.DropCluster(prod) }, none, 1, true},
		{"it goes again", func() { c.DropCluster(prod) }, none, 0, false},
		{"it comes paused", func() { c.SetCluster(prod, true) }, paused, 1, false},
	} {
		changes = nil
		step.do()
		if got := c.clusterPauses(own); got != step.why {
			t.Errorf("%s: it hands out nothing as %q, want %q", step.what, got, step.why)
		}
		if len(changes) != step.changes {
			t.Errorf("%s: %d changes, want %d: %+v", step.what, len(changes), step.changes, changes)
			continue
		}
		if step.changes > 0 && (changes[0].Pool != own.Key || changes[0].Unpaused != step.unpaused || fmt.Sprint(changes[0].Classes, changes[0].Labels) != fmt.Sprint(own.Classes, labels)) {
			t.Errorf("%s: got %+v, want the change of %s, unpaused: %t", step.what, changes[0], own.Key, step.unpaused)
		}
	}
	for what, want := range map[string]string{
		"of another Cluster": "there is no Cluster test", "of another's prod": "there is no Cluster prod", "of no Cluster": "", "of the whole system": "",
	} {
		if got := c.clusterPauses(pools[what]); want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
}

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
		"the older, though its name is later":        {[]ClassEntry{defaultOf("a", 2, ""), defaultOf("b", 1, "")}, "b"},
		"the older, whose name is first":             {[]ClassEntry{defaultOf("a", 1, ""), defaultOf("b", 2, "")}, "a"},
		"both are of an age":                         {[]ClassEntry{defaultOf("b", 1, ""), defaultOf("a", 1, "")}, "a"},
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
