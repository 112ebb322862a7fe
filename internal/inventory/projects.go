package inventory

import (
	"fmt"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// projects are the projects of the namespaces that have been seen. Users who may create
// a namespace may choose its name, but not necessarily its label: so a project
// consists of the namespaces that have its label, and a namespace without the label is
// the project of its own name only where no namespace has that label. Finding a
// project costs O(1).
type projects struct {
	// labels are the project labels of the namespaces; empty where there is none.
	labels map[string]string
	// labelled counts the namespaces of a label.
	labelled map[string]int
}

func newProjects() projects { return projects{labels: map[string]string{}, labelled: map[string]int{}} }

// aloneIn begins the project of a namespace that has no label and the name of a
// project. The value of a label has no slash, so it is no other namespace's project.
const aloneIn = "namespace/"

// of returns the project of a namespace, and false for one that has not been seen.
func (p projects) of(namespace string) (string, bool) {
	label, known := p.labels[namespace]
	switch {
	case !known:
		return "", false
	case label != "":
		return label, true
	case p.labelled[namespace] > 0:
		return aloneIn + namespace, true
	}
	return namespace, true
}

// set notes the label of a namespace, and drop forgets the namespace.
func (p projects) set(namespace, label string) {
	p.drop(namespace)
	p.labels[namespace] = label
	if label != "" {
		p.labelled[label]++
	}
}

func (p projects) drop(namespace string) {
	label := p.labels[namespace]
	delete(p.labels, namespace)
	if label == "" {
		return
	}
	if p.labelled[label]--; p.labelled[label] == 0 {
		delete(p.labelled, label)
	}
}

// SetProject notes the project label of a namespace, which is empty where it has none.
// Listeners are notified of every namespace whose project is another one than before. A
// namespace that is new is no change: nothing in it has been reconciled.
func (c *Catalogue) SetProject(namespace, label string) {
	c.changeProjects(namespace, label, func(p projects) { p.set(namespace, label) })
}

// DropNamespace forgets a namespace.
func (c *Catalogue) DropNamespace(namespace string) {
	c.changeProjects(namespace, "", func(p projects) { p.drop(namespace) })
}

// changeProjects makes a change of a namespace. Beside its own project that of the
// namespaces named like its label, before or after, may change.
func (c *Catalogue) changeProjects(namespace, label string, change func(projects)) {
	c.mu.Lock()
	concerned := map[string]string{}
	for _, name := range []string{namespace, label, c.namespaces.labels[namespace]} {
		if project, known := c.namespaces.of(name); known {
			concerned[name] = project
		}
	}
	change(c.namespaces)
	var changed []string
	for name, before := range concerned {
		if after, known := c.namespaces.of(name); known && after != before {
			changed = append(changed, name)
		}
	}
	listeners := c.listeners
	c.mu.Unlock()
	for _, name := range changed {
		notifyAll(listeners, Change{Namespace: name})
	}
}

// Tenant is on whose behalf a namespace asks; false for one that has not been seen. It is
// the platform by its label alone: users who may create namespaces may name one like it.
func (c *Catalogue) Tenant(namespace string) (ipam.Tenant, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	project, ok := c.namespaces.of(namespace)
	return ipam.Tenant{Project: project, Platform: c.platform != "" && c.namespaces.labels[namespace] == c.platform}, ok
}

// onBehalf says in a request on whose behalf it asks. A cluster-scoped pool asks
// on nobody's.
func (c *Catalogue) onBehalf(req ipam.Request) (ipam.Request, error) {
	namespace := req.Namespace()
	if namespace == "" {
		return req, nil
	}
	tenant, ok := c.Tenant(namespace)
	if !ok {
		return req, fmt.Errorf("the namespace %s has not been seen: %w", namespace, ipam.ErrNotSynced)
	}
	req.Tenant = tenant
	return req, nil
}
