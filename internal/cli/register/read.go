package register

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// pageSize is how many objects are listed at a time.
const pageSize = 5000

// Read lists all pools, the allocations, and the claims that wait. What the caller may
// not list in all namespaces is listed in one, and what may not be listed there either is
// left out: Unread says so. Other errors are returned.
func Read(ctx context.Context, reader client.Reader, namespace string) (*Register, error) {
	var objects Objects
	l := &lister{reader: reader, namespace: namespace}
	l.list(ctx, "ippools", &v1alpha1.IPPoolList{}, func(page client.ObjectList) {
		objects.Pools = append(objects.Pools, page.(*v1alpha1.IPPoolList).Items...)
	})
	l.list(ctx, "localippools", &v1alpha1.LocalIPPoolList{}, func(page client.ObjectList) {
		objects.LocalPools = append(objects.LocalPools, page.(*v1alpha1.LocalIPPoolList).Items...)
	})
	l.list(ctx, "ipallocations", &v1alpha1.IPAllocationList{}, func(page client.ObjectList) {
		objects.Allocations = append(objects.Allocations, page.(*v1alpha1.IPAllocationList).Items...)
	})
	l.list(ctx, "ipclaims", &v1alpha1.IPClaimList{}, func(page client.ObjectList) {
		objects.Waiting = append(objects.Waiting, page.(*v1alpha1.IPClaimList).Items...)
	}, notBound{})
	if l.err != nil {
		return nil, l.err
	}
	objects.Unread = l.unread
	return Build(&objects), nil
}

// notBound selects the claims that hold no block.
type notBound struct{}

// ApplyToList implements client.ListOption.
func (notBound) ApplyToList(options *client.ListOptions) {
	options.FieldSelector = fields.OneTermNotEqualSelector("status.phase", string(v1alpha1.ClaimBound))
}

// lister lists one kind after the other. It stops at the first error that is not a lack of rights.
type lister struct {
	reader    client.Reader
	namespace string

	unread []Unread
	err    error
}

// list lists a resource, a page at a time, and calls keep for each page.
func (l *lister) list(ctx context.Context, resource string, into client.ObjectList, keep func(page client.ObjectList), options ...client.ListOption) {
	if l.err != nil {
		return
	}
	err := l.pages(ctx, into, keep, options...)
	if !apierrors.IsForbidden(err) {
		l.note(resource, err)
		return
	}
	unread := Unread{Resource: resource, Err: err}
	if _, clusterScoped := into.(*v1alpha1.IPPoolList); !clusterScoped && l.namespace != "" {
		switch inNamespace := l.pages(ctx, into, keep, append(options, client.InNamespace(l.namespace))...); {
		case inNamespace == nil:
			unread.Namespace = l.namespace
		case !apierrors.IsForbidden(inNamespace):
			l.note(resource, inNamespace)
			return
		}
	}
	l.unread = append(l.unread, unread)
}

func (l *lister) note(resource string, err error) {
	if err != nil {
		l.err = fmt.Errorf("listing %s: %w", resource, err)
	}
}

func (l *lister) pages(ctx context.Context, into client.ObjectList, keep func(page client.ObjectList), options ...client.ListOption) error {
	options = append(options, client.Limit(pageSize))
	for next := ""; ; {
		page := into.DeepCopyObject().(client.ObjectList)
		if err := l.reader.List(ctx, page, append(options, client.Continue(next))...); err != nil {
			return err
		}
		keep(page)
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}
