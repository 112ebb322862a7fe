package register

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Listing is one resource to list.
type Listing struct {
	// Resource in the plural, as in a role: ippools.
	Resource string
	// List is an empty list of its kind.
	List client.ObjectList
	// Keep is called for each page.
	Keep func(page client.ObjectList)
}

// List lists a resource, a page at a time. What the caller may not list in all namespaces
// is listed in one, or left out, and returned as unread.
func List(ctx context.Context, reader client.Reader, namespace string, listing Listing) ([]Unread, error) {
	l := &lister{reader: reader, namespace: namespace}
	l.list(ctx, listing.Resource, listing.List, listing.Keep)
	return l.unread, l.err
}
