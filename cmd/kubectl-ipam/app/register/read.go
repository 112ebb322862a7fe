package register

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

const (
	// pageSize is the number of objects that are listed at a time.
	pageSize = 5000
	// atOnce is the number of lists of records that are read at a time.
	atOnce = 4
)

// isClusterScoped reports whether a resource, of those that are listed, is not in namespaces.
func isClusterScoped(resource string) bool {
	return resource == "ippools" || resource == globalInClusterPools
}

// Read lists all pools, the records in the scope, and the claims that wait. If the caller cannot
// list a resource in all namespaces, Read lists it in one; if the caller cannot list it there
// either, Read leaves it out. Unread reports both. Read returns other errors.
func Read(ctx context.Context, source *Source, namespace string, scope Scope) (*Register, error) {
	var objects Objects
	l := &lister{reader: source, namespace: namespace}
	notBound := fields.OneTermNotEqualSelector("status.phase", string(v1alpha1.ClaimBound))
	l.list(ctx, Each("ippools", &v1alpha1.IPPoolList{}, appendTo(&objects.Pools)))
	l.list(ctx, Each("localippools", &v1alpha1.LocalIPPoolList{}, appendTo(&objects.LocalPools)))
	for _, listing := range InClusterPools(objects.addInCluster) {
		l.listOptional(ctx, listing)
	}
	l.list(ctx, Each("ipclaims", &v1alpha1.IPClaimList{}, appendTo(&objects.Waiting)), client.MatchingFieldsSelector{Selector: notBound})
	if len(objects.Waiting) > 0 { // their classes decide from which pools they can be served
		objects.Classes = l.classes(ctx)
	}
	objects.Unread = l.unread
	for selectors := range scope.selectorSteps(&objects) {
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

func appendTo[T any](items *[]T) func(*T) {
	return func(item *T) { *items = append(*items, *item) }
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

// lister lists one kind after the other. It stops at the first error that is not a lack of rights.
type lister struct {
	reader    client.Reader
	namespace string

	unread []Unread
	err    error
}

// list lists a resource, a page at a time.
func (l *lister) list(ctx context.Context, listing Listing, options ...client.ListOption) {
	l.inOneOrAll(listing.resource, func(namespace string) error {
		options := append(options, client.InNamespace(namespace), client.Limit(pageSize))
		for next := ""; ; {
			page := listing.list.DeepCopyObject().(client.ObjectList)
			if err := l.reader.List(ctx, page, append(options, client.Continue(next))...); err != nil {
				return err
			}
			if err := meta.EachListItem(page, listing.keep); err != nil {
				return err
			}
			if next = page.GetContinue(); next == "" {
				return nil
			}
		}
	})
}

// listOptional lists a resource that the cluster need not have.
func (l *lister) listOptional(ctx context.Context, listing Listing) {
	if l.err != nil {
		return
	}
	if l.list(ctx, listing); meta.IsNoMatchError(l.err) {
		l.err = nil
	}
}

// records adds the records that any of the selectors selects, and reports whether the caller can
// list them in all namespaces. If not, it adds all records of one namespace.
func (l *lister) records(ctx context.Context, source *Source, which []fields.Selector, objects *Objects) bool {
	isWhole := true
	l.inOneOrAll("ipallocations", func(namespace string) error {
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
func (l *lister) inOneOrAll(resource string, list func(namespace string) error) {
	if l.err != nil {
		return
	}
	err := list("")
	if !apierrors.IsForbidden(err) {
		l.note(resource, err)
		return
	}
	unread := Unread{Resource: resource, Err: err}
	if !isClusterScoped(resource) && l.namespace != "" {
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

func (l *lister) note(resource string, err error) {
	if err != nil {
		l.err = fmt.Errorf("listing %s: %w", resource, err)
	}
}

// Listing represents one resource to list.
type Listing struct {
	resource string
	list     client.ObjectList
	keep     func(runtime.Object) error
}

// Each returns the listing of a resource, named in the plural as in a role, with an empty list of
// its kind. keep is called for each object.
func Each[T client.Object](resource string, list client.ObjectList, keep func(T)) Listing {
	return Listing{resource: resource, list: list, keep: func(obj runtime.Object) error {
		keep(obj.(T))
		return nil
	}}
}

// List lists a resource, or the part of it that options select, a page at a time. If the caller cannot list it in all namespaces, List
// lists it in one, or leaves it out, and returns it as unread.
func List(ctx context.Context, reader client.Reader, namespace string, listing Listing, options ...client.ListOption) ([]Unread, error) {
	l := &lister{reader: reader, namespace: namespace}
	l.list(ctx, listing, options...)
	return l.unread, l.err
}

// Source implements client.Reader with the rights of the caller, and reads records as they
// arrive. It can be used concurrently.
type Source struct {
	client.Reader
	records rest.Interface
}

// NewSource returns a source. The scheme knows the kinds of ipam.cadastre.dev.
func NewSource(config *rest.Config, reader client.Reader, scheme *runtime.Scheme) (*Source, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	kind := v1alpha1.GroupVersion.WithKind("IPAllocation")
	records, err := apiutil.RESTClientForGVK(kind, true, false, config, serializer.NewCodecFactory(scheme), httpClient)
	if err != nil {
		return nil, err
	}
	return &Source{Reader: reader, records: records}, nil
}

// allocation holds the fields that are read of an IPAllocation. A list of 100,000 is decoded in
// half the time and memory that the whole objects take.
type allocation struct {
	Metadata struct {
		Namespace         string            `json:"namespace"`
		Name              string            `json:"name"`
		UID               types.UID         `json:"uid"`
		ResourceVersion   string            `json:"resourceVersion"`
		CreationTimestamp metav1.Time       `json:"creationTimestamp"`
		DeletionTimestamp *metav1.Time      `json:"deletionTimestamp"`
		Annotations       map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec v1alpha1.IPAllocationSpec `json:"spec"`
}

func (a *allocation) object() *v1alpha1.IPAllocation {
	return &v1alpha1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: a.Metadata.Namespace, Name: a.Metadata.Name, UID: a.Metadata.UID,
			ResourceVersion: a.Metadata.ResourceVersion, Annotations: a.Metadata.Annotations,
			CreationTimestamp: a.Metadata.CreationTimestamp, DeletionTimestamp: a.Metadata.DeletionTimestamp,
		},
		Spec: a.Spec,
	}
}

// Records returns a source that lists and watches IPAllocations, in one namespace or in all. It
// reads a list as it arrives, and the list holds the result of keep for each.
func (s *Source) Records(namespace string, keep func(*v1alpha1.IPAllocation) runtime.Object) kubeutil.StreamingSource {
	which := kubeutil.Selection{Resource: "ipallocations", Namespace: namespace}
	return kubeutil.NewReadingSource(s.records, which, func(body io.Reader) (_ runtime.Object, err error) {
		list := &internalversion.List{}
		list.ListMeta, err = kubeutil.StreamItems(body, func(decode func(any) error) error {
			var item allocation
			err := decode(&item)
			list.Items = append(list.Items, keep(item.object()))
			return err
		})
		return list, err
	})
}

// listRecords lists the selected IPAllocations, in one namespace or in all.
func (s *Source) listRecords(ctx context.Context, namespace string, which fields.Selector) (records []*v1alpha1.IPAllocation, err error) {
	source := s.Records(namespace, func(record *v1alpha1.IPAllocation) runtime.Object {
		records = append(records, record)
		return record
	})
	_, err = source.ListWithContext(ctx, metav1.ListOptions{FieldSelector: which.String()})
	return records, err
}

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
		parts = append(parts, "you may not list "+ipam.JoinTexts(nowhere))
	}
	if len(inOne) > 0 {
		parts = append(parts, fmt.Sprintf("you may list %s in namespace %s alone", ipam.JoinTexts(inOne), namespace))
	}
	return strings.Join(parts, ", and ") + ": other objects are missing here"
}
