package register

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

const (
	// pageSize is the number of objects that are listed at a time.
	pageSize = 5000
	// atOnce is the number of lists of records that are read at a time.
	atOnce = 4
)

// Read lists all pools, the records in the scope, and the claims that wait. If the caller cannot
// list a resource in all namespaces, Read lists it in one; if the caller cannot list it there
// either, Read leaves it out. Unread reports both. Read returns other errors.
func Read(ctx context.Context, source *Source, namespace string, scope Scope) (*Register, error) {
	var objects Objects
	l := &lister{reader: source, namespace: namespace}
	l.list(ctx, "ippools", &v1alpha1.IPPoolList{}, func(page client.ObjectList) {
		objects.Pools = append(objects.Pools, page.(*v1alpha1.IPPoolList).Items...)
	})
	l.list(ctx, "localippools", &v1alpha1.LocalIPPoolList{}, func(page client.ObjectList) {
		objects.LocalPools = append(objects.LocalPools, page.(*v1alpha1.LocalIPPoolList).Items...)
	})
	l.list(ctx, "ipclaims", &v1alpha1.IPClaimList{}, func(page client.ObjectList) {
		objects.Waiting = append(objects.Waiting, page.(*v1alpha1.IPClaimList).Items...)
	}, notBound{})
	if len(objects.Waiting) > 0 { // their classes decide from which pools they can be served
		objects.Classes = l.classes(ctx)
	}
	objects.Unread = l.unread
	for selectors := range scope.of(&objects) {
		objects.RecordsRead = true
		if isWhole := l.records(ctx, source, selectors, &objects); !isWhole {
			break
		}
	}
	if l.err != nil {
		return nil, l.err
	}
	objects.Unread = l.unread
	return Build(&objects), nil
}

// classes returns the classes that the caller can list; whether there are others is of no
// interest to a person that asks for pools.
func (l *lister) classes(ctx context.Context) []v1alpha1.IPClass {
	list := &v1alpha1.IPClassList{}
	if err := l.reader.List(ctx, list); err != nil && !apierrors.IsForbidden(err) {
		l.note("ipclasses", err)
	}
	return list.Items
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
	l.inOneOrAll(resource, clusterScoped(into), func(namespace string) error {
		return l.pages(ctx, into, keep, append(options, client.InNamespace(namespace))...)
	})
}

// records adds the records that any of the selectors selects, and reports whether the caller can
// list them in all namespaces. If not, it adds all records of one namespace.
func (l *lister) records(ctx context.Context, source *Source, which []fields.Selector, objects *Objects) bool {
	isWhole := true
	l.inOneOrAll("ipallocations", false, func(namespace string) error {
		if namespace != "" {
			isWhole, which = false, []fields.Selector{fields.Everything()}
		}
		lists := make([][]*v1alpha1.IPAllocation, len(which), len(which)+1)
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(atOnce)
		for i, selector := range which {
			group.Go(func() (err error) {
				lists[i], err = source.listRecords(ctx, namespace, selector)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		objects.Allocations = merged(append(lists, objects.Allocations))
		return nil
	})
	return isWhole && l.err == nil
}

// merged returns the records of all lists, each once.
func merged(lists [][]*v1alpha1.IPAllocation) []*v1alpha1.IPAllocation {
	if len(lists) == 2 && len(lists[1]) == 0 {
		return lists[0]
	}
	var all []*v1alpha1.IPAllocation
	seen := map[types.UID]bool{}
	for _, record := range slices.Concat(lists...) {
		if !seen[record.UID] {
			seen[record.UID] = true
			all = append(all, record)
		}
	}
	return all
}

// inOneOrAll lists a resource in all namespaces, or in one if the caller cannot list it in all.
func (l *lister) inOneOrAll(resource string, clusterScoped bool, list func(namespace string) error) {
	if l.err != nil {
		return
	}
	err := list("")
	if !apierrors.IsForbidden(err) {
		l.note(resource, err)
		return
	}
	unread := Unread{Resource: resource, Err: err}
	if !clusterScoped && l.namespace != "" {
		switch inNamespace := list(l.namespace); {
		case inNamespace == nil:
			unread.Namespace = l.namespace
		case !apierrors.IsForbidden(inNamespace):
			l.note(resource, inNamespace)
			return
		}
	}
	l.unread = append(l.unread, unread)
}

func clusterScoped(list client.ObjectList) bool {
	_, isOfPools := list.(*v1alpha1.IPPoolList)
	return isOfPools
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
