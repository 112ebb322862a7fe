package register

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Listing represents one resource to list.
type Listing struct {
	// Resource is the name in the plural, as in a role: ippools.
	Resource string
	// List is an empty list of its kind.
	List client.ObjectList
	// Keep is called for each page.
	Keep func(page client.ObjectList)
}

// List lists a resource, a page at a time. If the caller cannot list it in all namespaces, List
// lists it in one, or leaves it out, and returns it as unread.
func List(ctx context.Context, reader client.Reader, namespace string, listing Listing) ([]Unread, error) {
	l := &lister{reader: reader, namespace: namespace}
	l.list(ctx, listing.Resource, listing.List, listing.Keep)
	return l.unread, l.err
}
