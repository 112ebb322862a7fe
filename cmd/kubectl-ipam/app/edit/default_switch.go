package edit

import (
	"cmp"
	"slices"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/inventory"
)

// step represents one write of a switch: the annotations that a class is to have.
type step struct {
	class     string
	isDefault bool
	replaces  string
	// withdrawn names the class that has become the default at the same time; the step
	// then takes the annotations off again.
	withdrawn string
}

func (s step) isNone() bool { return s.class == "" }

// nextStep returns the next write that makes the target the default class of its family; none
// when nothing is left to do. The classes are the target and the classes that are annotated as
// the default. At each moment between two writes either the class that counted before or the
// target counts, as inventory.DefaultOf decides. Admission allows each write: it refuses a
// second default, except one that replaces the only other.
//
//	old ─ default              new ─
//	old ─ default              new ─ default, replaces old     new counts from here on
//	old ─                      new ─ default, replaces old
//	old ─                      new ─ default
//
// It continues from the state in which an earlier run, or a person, has left the classes. Runs
// can overlap, also for different classes: a run removes the annotation of a class only if
// another class counts and the class is as it was read, and never that of the class that counts.
// So a switch that was begun is finished before the next one, in the other direction too. If
// this run has made the target the default and another class counts, a second switch was begun
// at the same time or after it, and this run leaves that switch alone.
func nextStep(classes []inventory.ClassEntry, target string, claimed bool) step {
	annotated := slices.DeleteFunc(slices.Clone(classes), func(c inventory.ClassEntry) bool { return !c.Default })
	counting, exists := inventory.DefaultOf(annotated)
	switch {
	case !exists:
		return step{class: target, isDefault: true}
	case counting.Name != target && claimed:
		return step{class: target, withdrawn: counting.Name}
	}
	for _, other := range annotated {
		if other.Name != counting.Name && counts(annotated, other.Name, counting.Name, target) {
			return step{class: other.Name}
		}
	}
	switch {
	case counting.Replaces != "":
		return step{class: counting.Name, isDefault: true}
	case counting.Name != target:
		return step{class: target, isDefault: true, replaces: counting.Name}
	}
	return step{}
}

// counts reports whether one of these counts when one class is no longer annotated.
func counts(annotated []inventory.ClassEntry, without string, these ...string) bool {
	counting, _ := inventory.DefaultOf(slices.DeleteFunc(slices.Clone(annotated), named(without)))
	return slices.Contains(these, counting.Name)
}

func named(name string) func(inventory.ClassEntry) bool {
	return func(c inventory.ClassEntry) bool { return c.Name == name }
}

// defaults returns the classes of a family that are annotated as the default.
func defaults(classes map[string]*v1alpha1.IPClass, family v1alpha1.IPFamily) []inventory.ClassEntry {
	var annotated []inventory.ClassEntry
	for _, class := range classes {
		if class.Spec.IPFamily == family && inventory.IsDefault(class) {
			annotated = append(annotated, entry(class))
		}
	}
	slices.SortFunc(annotated, func(a, b inventory.ClassEntry) int { return cmp.Compare(a.Name, b.Name) })
	return annotated
}

// defaultsAndTarget returns the defaults of the target's family, and the target.
func defaultsAndTarget(classes map[string]*v1alpha1.IPClass, target *v1alpha1.IPClass) []inventory.ClassEntry {
	all := defaults(classes, target.Spec.IPFamily)
	if !inventory.IsDefault(target) {
		all = append(all, entry(target))
	}
	return all
}

// entry reads a class; a class that is not valid counts by its annotations.
func entry(class *v1alpha1.IPClass) inventory.ClassEntry {
	read, _ := inventory.ReadClass(class)
	read.Name = class.Name
	return read
}
