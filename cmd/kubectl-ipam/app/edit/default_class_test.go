package edit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// TestDefaultClassSwitchHasNoGap switches from every state of three classes: each
// annotated or not, each replacing any other or none, in every order of age. A run that is
// interrupted after any write is a run from such a state.
func TestDefaultClassSwitchHasNoGap(t *testing.T) {
	states := 0
	for _, ages := range [][]int64{{1, 2, 3}, {1, 3, 2}, {2, 1, 3}, {2, 3, 1}, {3, 1, 2}, {3, 2, 1}} {
		for annotated := range 8 {
			for replaces := range 64 {
				var classes []inventory.ClassEntry
				for i, name := range []string{"a", "b", "t"} {
					classes = append(classes, class(name, ages[i], annotated>>i&1 == 1, []string{"", "a", "b", "t"}[replaces>>(2*i)&3]))
				}
				states++
				switchFrom(t, classes)
			}
		}
	}
	if states != 6*8*64 {
		t.Errorf("tried %d states", states)
	}
}

func class(name string, created int64, isDefault bool, replaces string) inventory.ClassEntry {
	return inventory.ClassEntry{Class: ipam.Class{Name: name}, Created: time.Unix(created, 0), Default: isDefault, Replaces: replaces}
}

// switchFrom switches the default to t.
func switchFrom(t *testing.T, classes []inventory.ClassEntry) {
	t.Helper()
	described := fmt.Sprintf("%+v", short(classes))
	before, hadDefault := inventory.DefaultOf(annotatedOf(classes))
	for range mostSteps {
		next := nextStep(classes, "t", false)
		if next.isNone() {
			if got := annotatedOf(classes); len(got) != 1 || got[0].Name != "t" || got[0].Replaces != "" {
				t.Fatalf("from %s: ends with %v", described, short(classes))
			}
			return
		}
		if why := refusedAt(classes, next); why != "" {
			t.Fatalf("from %s: at %v admission refuses %+v: %s", described, short(classes), next, why)
		}
		classes = apply(classes, next)
		counting, exists := inventory.DefaultOf(annotatedOf(classes))
		if hadDefault && (!exists || counting.Name != before.Name && counting.Name != "t") {
			t.Fatalf("from %s: %q counts after %+v, want %q or t", described, counting.Name, next, before.Name)
		}
	}
	t.Fatalf("from %s: does not end: %v", described, short(classes))
}

// refusedAt implements admission's rule.
func refusedAt(classes []inventory.ClassEntry, s step) string {
	before := classes[slices.IndexFunc(classes, named(s.class))]
	if !s.isDefault || before.Default && before.Replaces == s.replaces {
		return ""
	}
	for _, other := range annotatedOf(classes) {
		if other.Name != s.class && other.Name != s.replaces {
			return other.Name + " is the default"
		}
	}
	return ""
}

func apply(classes []inventory.ClassEntry, s step) []inventory.ClassEntry {
	classes = slices.Clone(classes)
	i := slices.IndexFunc(classes, named(s.class))
	classes[i].Default, classes[i].Replaces = s.isDefault, s.replaces
	return classes
}

// short prints the state of classes.
func short(classes []inventory.ClassEntry) []string {
	var all []string
	for _, c := range classes {
		text := fmt.Sprintf("%s(age %d)", c.Name, c.Created.Unix())
		if c.Default {
			text += " default"
		}
		if c.Replaces != "" {
			text += " replaces " + c.Replaces
		}
		all = append(all, text)
	}
	return all
}

// TestLaterDefaultClassSwitchIsWithdrawn lets two classes replace the default at one moment: the
// older one of the two counts, and the run of the other gives way.
func TestLaterDefaultClassSwitchIsWithdrawn(t *testing.T) {
	classes := []inventory.ClassEntry{class("old", 1, true, ""), class("b", 2, true, "old"), class("c", 3, true, "old")}
	if got, want := nextStep(classes, "c", true), (step{class: "c", withdrawn: "b"}); got != want {
		t.Errorf("the run for c does %+v, want %+v", got, want)
	}
	if got, want := nextStep(classes, "b", true), (step{class: "old"}); got != want {
		t.Errorf("the run for b does %+v, want %+v", got, want)
	}
}

// TestConcurrentDefaultClassSwitchesHaveNoGap lets two runs read and write in every order, for the same class
// and for different ones, from a finished switch and from each state of an unfinished one.
func TestConcurrentDefaultClassSwitchesHaveNoGap(t *testing.T) {
	explored := 0
	for _, ages := range [][]int64{{1, 2, 3}, {3, 2, 1}, {2, 1, 3}} {
		for _, begin := range [][]inventory.ClassEntry{
			{class("a", ages[0], true, ""), class("b", ages[1], false, ""), class("t", ages[2], false, "")},
			{class("a", ages[0], true, ""), class("b", ages[1], true, "a"), class("t", ages[2], false, "")},
			{class("a", ages[0], false, ""), class("b", ages[1], true, "a"), class("t", ages[2], false, "")},
			{class("a", ages[0], true, ""), class("b", ages[1], true, ""), class("t", ages[2], false, "")},
		} {
			for _, targets := range [][]string{{"a", "b"}, {"b", "t"}, {"t", "t"}, {"a", "t"}} {
				e := &interleavings{t: t, seen: map[string]bool{}, start: fmt.Sprintf("%v, for %v", short(begin), targets)}
				e.explore(world{classes: begin, runs: []run{{target: targets[0]}, {target: targets[1]}}}, 0)
				explored += len(e.seen)
			}
		}
	}
	if explored < 1000 {
		t.Errorf("explored %d states only", explored)
	}
}

// world holds a state of the classes, with the number of writes of each, and of two runs.
type world struct {
	classes  []inventory.ClassEntry
	versions [3]int
	runs     []run
}

// run represents one run of the command: about to read, or to write the step that it has decided
// on.
type run struct {
	target        string
	claimed, done bool
	next          step
	// version is the version of the class that the step writes, as it was read.
	version int
}

type interleavings struct {
	t     *testing.T
	start string
	seen  map[string]bool
}

// mostActions is the largest number of reads and writes of two runs.
const mostActions = 60

func (e *interleavings) explore(w world, depth int) {
	key := fmt.Sprintf("%+v", w)
	if e.seen[key] || e.t.Failed() {
		return
	}
	if depth > mostActions {
		e.t.Errorf("from %s: the runs do not end: %v, runs %+v", e.start, short(w.classes), w.runs)
		return
	}
	e.seen[key] = true
	if _, exists := inventory.DefaultOf(annotatedOf(w.classes)); !exists {
		e.t.Errorf("from %s: there is no default: %v, runs %+v", e.start, short(w.classes), w.runs)
		return
	}
	for i := range w.runs {
		if !w.runs[i].done {
			e.explore(w.after(i), depth+1)
		}
	}
}

// after returns the world after the next action of a run: a write if it has decided on one, else a
// read.
func (w world) after(i int) world {
	w.runs = slices.Clone(w.runs)
	r := &w.runs[i]
	if r.next.isNone() {
		r.next = nextStep(w.classes, r.target, r.claimed)
		if r.done = r.next.isNone(); !r.done {
			r.version = w.versions[slices.IndexFunc(w.classes, named(r.next.class))]
		}
		return w
	}
	s, at := r.next, slices.IndexFunc(w.classes, named(r.next.class))
	r.next = step{}
	switch {
	case w.versions[at] != r.version: // conflict: it reads again
		return w
	case refusedAt(w.classes, s) != "":
		r.done = true
		return w
	}
	w.classes = apply(w.classes, s)
	w.versions[at]++
	r.done = s.withdrawn != ""
	r.claimed = r.claimed || s.class == r.target && s.isDefault
	return w
}

// TestNewDefaultClassReportsLostRequests covers each way in which it can serve less.
func TestNewDefaultClassReportsLostRequests(t *testing.T) {
	backed := func(b *build.ClassBuilder) *v1alpha1.IPClass {
		class := b.Obj()
		class.Status.Pools = 1
		return class
	}
	before := backed(build.Class("old").Length(24).Lengths(20, 28))
	for name, c := range map[string]struct {
		next *v1alpha1.IPClass
		want string
	}{
		"the same":                {backed(build.Class("new").Length(26).Lengths(16, 30)), ""},
		"no pool":                 {build.Class("new").Length(24).Lengths(20, 28).Obj(), "no IPPool"},
		"no length":               {backed(build.Class("new").Lengths(20, 28)), "no defaultPrefixLength"},
		"fewer lengths":           {backed(build.Class("new").Length(24).Lengths(22, 28)), "it allows /22 to /28, and old allows /20 to /28"},
		"others":                  {backed(build.Class("new").Length(24).Lengths(20, 28).With(func(s *v1alpha1.IPClassSpec) { s.Visibility, s.Project = "Consumer", "red" })), "Consumer, of project red"},
		"no room is a refusal":    {backed(build.Class("new").Length(24).Lengths(20, 28).With(func(s *v1alpha1.IPClassSpec) { s.OnExhaustion = "Reject" })), "onExhaustion is Reject"},
		"it is the default class": {before, ""},
	} {
		got := notServed(before, c.next)
		if c.want == "" && len(got) > 0 || c.want != "" && !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, c.want) }) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if got := notServed(nil, build.Class("new").Obj()); got != nil {
		t.Errorf("got %q where there is no default class", got)
	}
}
