package inventory

import (
	"cmp"
	"slices"
	"time"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// ClassEntry is a class with what decides between two defaults.
type ClassEntry struct {
	ipam.Class
	Default bool
	// Replaces names the default class in whose place this one is the default.
	Replaces string
	Created  time.Time
}

// DefaultOf is the class that counts of several of one family that are each annotated as
// the default: the oldest, but for those that another of them replaces. Two that replace
// each other do not. It is false where there is none.
//
// So a switch of the default from A to B is never without one. B is made the default that
// replaces A, by one write: from then on B counts. Then A is made the default no more, which
// changes nothing.
func DefaultOf(classes []ClassEntry) (ClassEntry, bool) {
	if len(classes) == 0 {
		return ClassEntry{}, false
	}
	var counting []ClassEntry
	for _, class := range classes {
		if !slices.ContainsFunc(classes, func(other ClassEntry) bool { return other.replaces(class) }) {
			counting = append(counting, class)
		}
	}
	if len(counting) == 0 { // each replaces another
		counting = classes
	}
	return slices.MinFunc(counting, olderFirst), true
}

// replaces reports whether the class counts in place of the other.
func (e ClassEntry) replaces(other ClassEntry) bool {
	return e.Replaces == other.Name && other.Replaces != e.Name
}

func olderFirst(a, b ClassEntry) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
}

// ReadClass reads a class, with what decides whether it is the default. It is false where the
// class is not valid.
func ReadClass(obj *v1alpha1.IPClass) (ClassEntry, bool) {
	class, errs := convert.Class(obj)
	return ClassEntry{
		Class: class, Created: obj.CreationTimestamp.Time,
		Default:  IsDefault(obj),
		Replaces: obj.Annotations[v1alpha1.AnnotationReplacesDefault],
	}, len(errs) == 0
}

// IsDefault reports whether a class is annotated as the default.
func IsDefault(obj *v1alpha1.IPClass) bool {
	return obj.Annotations[v1alpha1.AnnotationDefaultClass] == "true"
}

// defaultsFirst orders classes that were listed so that those which are the default come
// first. Entered in this order, there is a default at each moment where there was one before
// and is one after.
func defaultsFirst(classes []v1alpha1.IPClass) {
	slices.SortStableFunc(classes, func(a, b v1alpha1.IPClass) int {
		switch {
		case IsDefault(&a) == IsDefault(&b):
			return 0
		case IsDefault(&a):
			return -1
		default:
			return 1
		}
	})
}
