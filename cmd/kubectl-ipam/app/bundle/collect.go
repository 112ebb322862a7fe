package bundle

import (
	"archive/zip"
	"context"
	"errors"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Collector collects a bundle with the rights of its caller.
type Collector struct {
	Client client.Client
	// Clients read the logs of pods.
	Clients kubernetes.Interface
	// Namespace limits the namespaced objects to one namespace; empty: all. If the caller cannot
	// read objects in all namespaces, those of Own are read.
	Namespace, Own string
	// Operator is the operator's namespace.
	Operator string
	Now      func() time.Time
	// Reports are written beside the collected objects, by the names of their files; an error is
	// noted in the index.
	Reports []Report
}

// Report represents a report of another command.
type Report struct {
	File string
	Make func(context.Context) (any, error)
}

const (
	pageSize = 500
)

// Collect writes the bundle, and returns its index.
func (c *Collector) Collect(ctx context.Context, into io.Writer) (*Index, error) {
	a := &archive{Writer: zip.NewWriter(into), filter: &Filter{}, now: c.Now(), index: Index{Scope: "all namespaces", Operator: c.Operator}}
	if c.Namespace != "" {
		a.index.Scope = "namespace " + c.Namespace
	}
	a.index.Created = a.now.UTC().Format(time.RFC3339)
	c.learn(ctx, a.filter)
	for _, l := range listings(c.Operator) {
		if err := c.list(ctx, a, l); err != nil {
			return nil, err
		}
	}
	if err := c.logs(ctx, a); err != nil {
		return nil, err
	}
	for _, report := range c.Reports {
		value, err := report.Make(ctx)
		if err != nil {
			a.unread(report.File, err)
			continue
		}
		if err := a.value(report.File, value); err != nil {
			return nil, err
		}
	}
	return &a.index, a.finish()
}

// learn teaches the filter the paths of the webhooks before anything is written.
func (c *Collector) learn(ctx context.Context, filter *Filter) {
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		list := listOf(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind})
		if err := c.Client.List(ctx, list); err != nil {
			continue // noted when they are written
		}
		for i := range list.Items {
			filter.LearnPaths(&list.Items[i])
		}
	}
}

func listOf(kind schema.GroupVersionKind) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return list
}

// list writes the objects that a listing selects into a separate file, a page at a time.
func (c *Collector) list(ctx context.Context, a *archive, l listing) error {
	var w io.Writer
	keep := func(page []unstructured.Unstructured) (err error) {
		if page = l.selected(page); len(page) == 0 {
			return nil
		}
		if w == nil {
			if w, err = a.create(l.file); err != nil {
				return err
			}
		}
		return a.objects(w, page)
	}
	namespace := l.namespace
	if namespace == "" && !l.clusterScoped {
		namespace = c.Namespace
	}
	err := c.pages(ctx, l, namespace, keep)
	if apierrors.IsForbidden(err) && namespace == "" && !l.clusterScoped && c.Own != "" {
		a.unread(l.what()+" outside namespace "+c.Own, err)
		err = c.pages(ctx, l, c.Own, keep)
	}
	var failed *writeError
	switch {
	case errors.As(err, &failed):
		return failed.err
	case meta.IsNoMatchError(err):
		a.unread(l.what(), errors.New("the cluster does not have this kind"))
	case err != nil:
		a.unread(l.what(), err)
	}
	return nil
}

// writeError means that the bundle could not be written.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }

func (c *Collector) pages(ctx context.Context, l listing, namespace string, keep func([]unstructured.Unstructured) error) error {
	for next := ""; ; {
		page := listOf(l.kind)
		if err := c.Client.List(ctx, page, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(next)); err != nil {
			return err
		}
		if err := keep(page.Items); err != nil {
			return &writeError{err}
		}
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}
