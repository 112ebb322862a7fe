package register

import (
	"fmt"
	"strings"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Unread represents a kind of object that the caller cannot list everywhere.
type Unread struct {
	// Resource is the name in the plural, as in a role: ippools.
	Resource string
	// Namespace is the only one in which the caller can list; empty if there is none.
	Namespace string
	// Err is the answer of the API server.
	Err error
}

// Explain describes the unread kinds in one sentence. There is at least one.
func Explain(unread []Unread) string {
	var nowhere, inOne []string
	namespace := ""
	for _, u := range unread {
		if u.Namespace == "" {
			nowhere = append(nowhere, u.Resource)
			continue
		}
		inOne, namespace = append(inOne, u.Resource), u.Namespace
	}
	var parts []string
	if len(nowhere) > 0 {
		parts = append(parts, "you may not list "+join(nowhere))
	}
	if len(inOne) > 0 {
		parts = append(parts, fmt.Sprintf("you may list %s in namespace %s alone", join(inOne), namespace))
	}
	return strings.Join(parts, ", and ") + ": what is elsewhere is missing here"
}

// join returns a list in words: a, b and c.
func join(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// InvalidError represents an object that could not be understood.
type InvalidError struct {
	Object ipam.Holder
	Err    error
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("%s is not valid and is left out: %v", e.Object, e.Err)
}

// Unwrap returns the error in the object.
func (e *InvalidError) Unwrap() error { return e.Err }
