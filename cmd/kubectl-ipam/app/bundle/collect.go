// Package bundle writes the objects and logs that are needed to understand a problem into a ZIP
// file, and no secrets.
//
// It never reads Secrets. All data passes two filters: [Redact] takes the fields that hold secrets
// out of an object, and a [Filter] takes out of every text all that looks like a secret, or is
// known to be one: the paths of the webhooks, tokens and private keys.
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
	"sigs.k8s.io/yaml"

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

const pageSize = 500

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
	if err := a.value("index.yaml", a.index); err != nil {
		return nil, err
	}
	return &a.index, a.Close()
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
	var failed error // that of the bundle, not of the cluster
	keep := func(page []unstructured.Unstructured) error {
		if page = l.selected(page); len(page) == 0 {
			return nil
		}
		if w == nil {
			w, failed = a.create(l.file)
		}
		if failed == nil {
			failed = a.objects(w, page)
		}
		return failed
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
	switch {
	case failed != nil:
		return failed
	case meta.IsNoMatchError(err) && l.optional:
	case meta.IsNoMatchError(err):
		a.unread(l.what(), errors.New("the cluster does not have this kind"))
	case err != nil:
		a.unread(l.what(), err)
	}
	return nil
}

func (c *Collector) pages(ctx context.Context, l listing, namespace string, keep func([]unstructured.Unstructured) error) error {
	for next := ""; ; {
		page := listOf(l.kind)
		if err := c.Client.List(ctx, page, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(next)); err != nil {
			return err
		}
		if err := keep(page.Items); err != nil {
			return err
		}
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

// logLines and logBytes bound the log of a container. Only logLines is sent to the API server: its
// own bound of bytes would leave out the end, which matters most. The kubelet reads one file of the
// log, which it rotates at 10 MiB if not configured otherwise.
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
	stream, err := c.Clients.CoreV1().Pods(c.Operator).GetLogs(pod, &corev1.PodLogOptions{
		Container: container, Previous: previous, TailLines: new(logLines), Timestamps: true,
	}).Stream(ctx)
	if err != nil {
		a.unread(file, err)
		return nil
	}
	defer stream.Close() //nolint:errcheck // all of it was read
	text, err := io.ReadAll(stream)
	if err != nil {
		a.unread("the end of "+file, err)
	}
	if excess := len(text) - logBytes; excess > 0 {
		_, text, _ = bytes.Cut(text[excess:], []byte("\n")) // a part of a token would not be recognized
	}
	return a.text(file, string(text))
}

// Index lists the files of a bundle, and the objects that could not be read.
type Index struct {
	// Created is the API server's time.
	Created string `json:"created"`
	// Scope names the namespaces of the bundle.
	Scope string `json:"scope"`
	// Operator is the operator's namespace.
	Operator string `json:"operatorNamespace"`
	Files    []File `json:"files"`
	// Unread lists the objects that could not be read.
	Unread []Unread `json:"unread,omitempty"`
}

// File describes one file of a bundle.
type File struct {
	Name string `json:"name"`
	// Objects is the number of objects in the file; zero for reports and logs.
	Objects int `json:"objects,omitempty"`
}

// Unread names objects or logs that could not be read, and the reason.
type Unread struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// archive writes a ZIP file. All its contents pass the filter.
type archive struct {
	*zip.Writer
	index  Index
	filter *Filter
	now    time.Time
}

// create begins a file.
func (a *archive) create(name string) (io.Writer, error) {
	a.index.Files = append(a.index.Files, File{Name: name})
	return a.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: a.now})
}

// text writes a file.
func (a *archive) text(name, text string) error {
	w, err := a.create(name)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, a.filter.Text(text))
	return err
}

// value writes a file with a value as YAML.
func (a *archive) value(name string, value any) error {
	text, err := yaml.Marshal(value)
	if err != nil {
		return err
	}
	return a.text(name, string(text))
}

// unread records in the index that something could not be read, and why.
func (a *archive) unread(what string, err error) {
	a.index.Unread = append(a.index.Unread, Unread{What: what, Why: a.filter.Text(err.Error())})
}

// objects appends objects to a file, as a stream of YAML documents.
func (a *archive) objects(w io.Writer, items []unstructured.Unstructured) error {
	for i := range items {
		Redact(&items[i])
		text, err := yaml.Marshal(items[i].Object)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(w, "---\n"+a.filter.Text(string(text))); err != nil {
			return err
		}
	}
	a.index.Files[len(a.index.Files)-1].Objects += len(items)
	return nil
}
