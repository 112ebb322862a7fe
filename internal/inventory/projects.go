package inventory

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// projects holds the projects of the namespaces that have been seen. Users that can create a
// namespace can choose its name, but not necessarily its label. Therefore a project consists of the
// namespaces that have its label, and a namespace without the label is the project with its name
// only if no namespace has that label. Finding a project costs O(1).
type projects struct {
	// labels holds the project labels of the namespaces; empty if there is none.
	labels map[string]string
	// labelCounts is the number of namespaces of each label.
	labelCounts map[string]int
}

func newProjects() projects {
	return projects{labels: map[string]string{}, labelCounts: map[string]int{}}
}

// namespaceProjectPrefix begins the project of a namespace without label and with the name of a
// project. A label has no slash, so it is no other namespace's project.
const namespaceProjectPrefix = "namespace/"

// projectOf returns the project of a namespace, and false for a namespace that has not been seen.
func (p projects) projectOf(namespace string) (string, bool) {
	label, ok := p.labels[namespace]
	switch {
	case !ok:
		return "", false
	case label != "":
		return label, true
	case p.labelCounts[namespace] > 0:
		return namespaceProjectPrefix + namespace, true
	}
	return namespace, true
}

// setLabel stores the label of a namespace, and drop removes the namespace.
func (p projects) setLabel(namespace, label string) {
	p.removeLabel(namespace)
	p.labels[namespace] = label
	if label != "" {
		p.labelCounts[label]++
	}
}

func (p projects) removeLabel(namespace string) {
	label := p.labels[namespace]
	delete(p.labels, namespace)
	if label == "" {
		return
	}
	if p.labelCounts[label]--; p.labelCounts[label] == 0 {
		delete(p.labelCounts, label)
	}
}

// SetProject stores the project label of a namespace, which may be empty. Listeners are notified of
// every namespace with another project than before. A new one is no change: nothing in it has been
// reconciled.
func (c *Catalog) SetProject(namespace, label string) {
	c.changeProjects(namespace, label, func(p projects) { p.setLabel(namespace, label) })
}

// DropNamespace removes a namespace.
func (c *Catalog) DropNamespace(namespace string) {
	c.changeProjects(namespace, "", func(p projects) { p.removeLabel(namespace) })
}

// changeProjects applies a change of a namespace, which may affect the projects of those that have
// the name of its label, before or after.
func (c *Catalog) changeProjects(namespace, label string, apply func(projects)) {
	c.applyChange(func() (changes []Change) {
		projectsBefore := map[string]string{}
		for _, name := range []string{namespace, label, c.namespaces.labels[namespace]} {
			if project, ok := c.namespaces.projectOf(name); ok {
				projectsBefore[name] = project
			}
		}
		apply(c.namespaces)
		for name, previous := range projectsBefore {
			if current, ok := c.namespaces.projectOf(name); ok && current != previous {
				changes = append(changes, Change{Namespace: name})
			}
		}
		return changes
	})
}

// Tenant returns the tenant of a namespace that has been seen. The platform is recognized by its
// label alone: users that can create namespaces can give one the platform's name.
func (c *Catalog) Tenant(namespace string) (ipam.Tenant, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	project, ok := c.namespaces.projectOf(namespace)
	return ipam.Tenant{Project: project, Platform: c.platformProject != "" && c.namespaces.labels[namespace] == c.platformProject}, ok
}

// EnsureNamespace reads the project of a namespace that has not been seen.
func (c *Catalog) EnsureNamespace(ctx context.Context, live client.Reader, name string) error {
	if _, ok := c.Tenant(name); ok {
		return nil
	}
	namespace := kubeutil.NewNamespace()
	namespace.Name = name
	return refreshObject(ctx, live, "namespace", namespace, c.onNamespaceUpdate)
}

// withTenant returns the request with its tenant. A cluster-scoped pool has none.
func (c *Catalog) withTenant(req ipam.Request) (ipam.Request, error) {
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

// LacksRight reports whether a request names an IPPool that it may not use, or one that has not
// been seen. The requester must not learn which of the two is the case.
func (c *Catalog) LacksRight(req ipam.Request) bool {
	if req.Pool.Kind != ipam.PoolKindIPPool {
		return false
	}
	req, err := c.withTenant(req)
	if err != nil {
		return true // the namespace is new
	}
	pool, ok := c.Pool(req.Pool)
	return !ok || !req.MayName(pool)
}

// MayBeGranted returns the named pool, and reports whether the request lacks only the right to use
// it.
func (c *Catalog) MayBeGranted(req ipam.Request) (ipam.Pool, bool) {
	req, err := c.withTenant(req)
	if err != nil {
		return ipam.Pool{}, false
	}
	pool, ok := c.Pool(req.Pool)
	if !ok || req.MayName(pool) {
		return pool, false
	}
	req.Grant = &ipam.Grant{}
	return pool, req.MayName(pool)
}

// Redact removes the holder of a block from an error for a namespace of another project. An empty
// namespace stands for the platform, which can see the holder.
func (c *Catalog) Redact(namespace string, err error) error {
	var taken *ipam.TakenError
	if namespace == "" || !errors.As(err, &taken) {
		return err
	}
	tenant, _ := c.Tenant(namespace)
	holder, ok := c.Tenant(taken.Holder.Namespace)
	if ok && tenant.Project == holder.Project {
		return err
	}
	return ipam.WithPools(taken.Redacted(), ipam.PoolsOf(err))
}

// MayHold reports whether the pool is known, and returns a *ipam.MissingError if the namespace may
// not use it: then it does not hold the block that it claims to hold there.
func (c *Catalog) MayHold(req ipam.Request, key ipam.PoolKey) (isKnown bool, err error) {
	req, err = c.withTenant(req)
	if err != nil {
		return false, err
	}
	pool, isKnown := c.Pool(key)
	if isKnown && !req.MayName(pool) {
		return true, NoSuchPool(req, key)
	}
	return isKnown, nil
}

// MayRetain returns a *ipam.PolicyError if a claim may not have its block retained by its class;
// or, if it names none, by the pool of its block, which is recorded under the name.
func (c *Catalog) MayRetain(req ipam.Request, recorded string) error {
	owner := "IPClass " + req.Class
	if req.Class != "" {
		if class, _ := c.Class(req.Class); class.AllowRetain {
			return nil
		}
	} else {
		key := req.Pool
		if record, ok := c.ledger.Record(ipam.Name{Namespace: req.Claim.Namespace, Name: recorded}); ok {
			key = record.Pool
		}
		if pool, _ := c.Pool(key); pool.AllowRetain {
			return nil
		}
		owner = key.String()
	}
	return &ipam.PolicyError{Field: "spec.reclaimPolicy", Value: ipam.ReclaimRetain,
		Remedy: owner + " does not allow it (allowRetain): leave it Delete"}
}

// Keeping returns the time for which class and pool of a record keep its block.
func (c *Catalog) Keeping(record ipam.Record) ipam.Keeping {
	var class *ipam.Class
	var pool *ipam.Pool
	if entry, ok := c.Class(record.Class); ok && record.Class != "" {
		class = &entry.Class
	}
	if p, ok := c.Pool(record.Pool); ok {
		pool = &p
	}
	return ipam.KeepingOf(class, pool)
}

// TermsOfAddress returns the terms for recording an address that an IPAddress has already.
func (c *Catalog) TermsOfAddress(addr netip.Addr, class string) ipam.Terms {
	terms := ipam.Terms{Class: class, Block: netip.PrefixFrom(addr, addr.BitLen()), Length: addr.BitLen(), Reclaim: ipam.ReclaimDelete}
	if entry, ok := c.Class(class); ok {
		terms.Reclaim = entry.Reclaim
	}
	return terms
}

// ResolvePool finds the source of a pool's own CIDR: its parent, or its routing domain. With an
// error, a *ipam.MissingError or *ipam.PolicyError about the parent, it returns the known part of
// the terms.
func (c *Catalog) ResolvePool(pool ipam.Pool) (Resolution, error) {
	res := Resolution{Terms: ipam.Terms{Family: pool.Family, Length: pool.Length, Block: pool.CIDR, Reclaim: ipam.ReclaimDelete}}
	if blocks := pool.Blocks(); pool.Occupied != nil {
		res.Terms.Block, res.Terms.Length = blocks[0], blocks[0].Bits()
	}
	if !pool.IsChild() {
		res.Pools = []ipam.Pool{{Key: pool.Home, CIDR: pool.Family.All(), Family: pool.Family}}
		return res, nil
	}
	req, err := c.withTenant(pool.ParentRequest())
	if err != nil {
		return Resolution{}, err
	}
	parent, ok := c.Pool(pool.Home)
	if !ok || !req.MayName(parent) {
		return res, noPoolError(req, v1alpha1.ReasonParentNotReady, "parent")
	}
	if res.Terms.Family == "" {
		res.Terms.Family = parent.Family
	}
	if err := allOfParent(res.Terms, parent); err != nil && pool.Occupied == nil {
		return res, err
	}
	if unready, ok := errors.AsType[*ipam.MissingError](c.PoolReady(parent)); ok {
		unready.Reason = v1alpha1.ReasonParentNotReady
		return res, ipam.WithPools(unready, []ipam.PoolResult{{Pool: parent.Key, Err: unready}})
	}
	if pool.Occupied != nil { // ranges have no length that the parent could bound
		res.Pools = []ipam.Pool{parent}
		return res, rangesInParent(pool, parent)
	}
	pools, _, err := res.Terms.Fitting([]ipam.Pool{parent})
	if err == nil {
		pools, _, err = splitBySize(res.Terms, pools)
	}
	res.Pools = pools
	return res, err
}

// allOfParent returns a *ipam.PolicyError for a child pool that is as large as its parent.
func allOfParent(terms ipam.Terms, parent ipam.Pool) error {
	if !parent.CIDR.IsValid() || terms.Length != parent.CIDR.Bits() {
		return nil
	}
	return &ipam.PolicyError{Field: "spec.prefixLength", Value: terms.Length, Remedy: "is all of the parent " + parent.CIDR.String() + ": ask for a smaller block"}
}

// rangesInParent returns a *ipam.PolicyError for a child pool that occupies ranges outside its parent.
func rangesInParent(pool, parent ipam.Pool) error {
	for _, block := range pool.Blocks() {
		if !parent.Has(block) {
			return &ipam.PolicyError{Field: "spec.ranges", Value: block, Remedy: fmt.Sprintf("lies outside the parent %s, which is %s: remove it, or name another parent", parent.Key, parent.Extent())}
		}
	}
	return nil
}

// Descends reports whether a pool is the ancestor or descends from it, as far as this process has
// seen.
func (c *Catalog) Descends(pool, ancestor ipam.PoolKey) bool {
	for visited := map[ipam.PoolKey]bool{}; !visited[pool]; {
		if pool == ancestor {
			return true
		}
		visited[pool] = true
		parent, ok := c.Pool(pool)
		if !ok {
			return false
		}
		pool = parent.Home
	}
	return false
}
