package bundle

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/installation"
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
func (c *Collector) Collect(ctx context.Context, out io.Writer) (*Index, error) {
	a := &archive{Writer: zip.NewWriter(out), filter: &Filter{}, now: c.Now(), index: Index{Scope: "all namespaces", Operator: c.Operator}}
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

// logLines and logBytes bound the log of a container. Only logLines is sent to the API server: its
// own bound of bytes would leave out the end, which matters most.
const (
	logLines = int64(5000)
	logBytes = 2 << 20
)

// logs writes the end of the logs of the operator's pods.
func (c *Collector) logs(ctx context.Context, a *archive) error {
	pods := &corev1.PodList{}
	if err := c.Client.List(ctx, pods, client.InNamespace(c.Operator), installation.Labels()); err != nil {
		a.unread("logs of the operator", err)
		return nil
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		for j := range pod.Spec.Containers {
			if err := c.log(ctx, a, pod.Name, pod.Spec.Containers[j].Name, false); err != nil {
				return err
			}
		}
		for j := range pod.Status.ContainerStatuses {
			if status := &pod.Status.ContainerStatuses[j]; status.RestartCount > 0 {
				if err := c.log(ctx, a, pod.Name, status.Name, true); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (c *Collector) log(ctx context.Context, a *archive, pod, container string, previous bool) error {
	file := fmt.Sprintf("logs/%s.%s.log", pod, container)
	if previous {
		file = fmt.Sprintf("logs/%s.%s.previous.log", pod, container)
	}
	lines := logLines
	stream, err := c.Clients.CoreV1().Pods(c.Operator).GetLogs(pod, &corev1.PodLogOptions{
		Container: container, Previous: previous, TailLines: &lines, Timestamps: true,
	}).Stream(ctx)
	if err != nil {
		a.unread(file, err)
		return nil
	}
	defer stream.Close() //nolint:errcheck // all of it was read
	var end tail
	if _, err := io.Copy(&end, stream); err != nil {
		a.unread("the end of "+file, err)
	}
	return a.text(file, string(end.text()))
}

// tail keeps the end of the written text: whole lines of logBytes at most.
type tail struct {
	kept []byte
	cut  bool
}

// Write keeps up to twice as much, so that it moves each byte once at most.
func (t *tail) Write(p []byte) (int, error) {
	if t.kept = append(t.kept, p...); len(t.kept) > 2*logBytes {
		t.shorten()
	}
	return len(p), nil
}

func (t *tail) shorten() {
	t.kept, t.cut = append(t.kept[:0], t.kept[len(t.kept)-logBytes:]...), true
}

func (t *tail) text() []byte {
	if len(t.kept) > logBytes {
		t.shorten()
	}
	if !t.cut {
		return t.kept
	}
	_, whole, _ := bytes.Cut(t.kept, []byte("\n")) // a part of a token would not be recognized
	return whole
}
