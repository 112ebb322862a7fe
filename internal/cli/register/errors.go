package register

import (
	"fmt"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Unread is a kind of object that the caller may not list everywhere.
type Unread struct {
	// Resource in the plural, as in a role: ippools.
	Resource string
	// Namespace is the only one in which the caller may list; empty where there is none.
	Namespace string
	// Err is the answer of the API server.
	Err error
}

// String says what is missing and what to do about it.
func (u Unread) String() string {
	verb := fmt.Sprintf("you may not list %s", u.Resource)
	if u.Namespace != "" {
		verb = fmt.Sprintf("you may list %s in namespace %s alone", u.Resource, u.Namespace)
	}
	return verb + ", so some may be missing here: ask for the right to list them"
}

// InvalidError means that an object could not be understood.
type InvalidError struct {
	Kind string
	Name ipam.Name
	Err  error
}

func (e *InvalidError) Error() string {
	name := e.Name.Name
	if e.Name.Namespace != "" {
		name = e.Name.String()
	}
	return fmt.Sprintf("%s %s is not valid and is left out: %v", e.Kind, name, e.Err)
}

// Unwrap returns what is wrong with the object.
func (e *InvalidError) Unwrap() error { return e.Err }
