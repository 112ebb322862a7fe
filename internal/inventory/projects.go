package inventory

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
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

// NeedsGrant reports whether to name the pool that the request names takes the right
// to use it.
func (c *Catalogue) NeedsGrant(req ipam.Request) bool {
	req, err := c.onBehalf(req)
	if err != nil {
		return false
	}
	pool, ok := c.Pool(req.Pool)
	return ok && req.NeedsGrant(pool)
}

// LacksRight reports whether a request names an IPPool that it may not use, or one
// that does not exist as far as this process has seen. Which of the two is not for
// the requester to learn.
func (c *Catalogue) LacksRight(req ipam.Request) bool {
	if req.Pool.Kind != ipam.PoolKindIPPool {
		return false
	}
	req, err := c.onBehalf(req)
	if err != nil {
		return true // the namespace is new
	}
	pool, ok := c.Pool(req.Pool)
	return !ok || !req.MayName(pool)
}

// MayBeGranted reports whether all that a request lacks to name its pool is the right
// to use it.
func (c *Catalogue) MayBeGranted(req ipam.Request) bool {
	req, err := c.onBehalf(req)
	if err != nil {
		return false
	}
	pool, ok := c.Pool(req.Pool)
	if !ok || req.MayName(pool) {
		return false
	}
	req.Granted = true
	return req.MayName(pool)
}

// Redacted removes the holder of a block from an error for a namespace, unless
// that is in the same project. Where the namespace is empty it is the platform
// that asks, which may know.
func (c *Catalogue) Redacted(namespace string, err error) error {
	var taken *ipam.TakenError
	if namespace == "" || !errors.As(err, &taken) {
		return err
	}
	asking, _ := c.Tenant(namespace)
	holding, known := c.Tenant(taken.Holder.Namespace)
	if known && asking.Project == holding.Project {
		return err
	}
	return ipam.WithPools(taken.Redacted(), ipam.PoolsOf(err))
}

// MayHold reports whether the pool is known. The error is a *ipam.MissingError where it
// is, and the namespace may not use it: what it says it holds there, it does not.
func (c *Catalogue) MayHold(req ipam.Request, key ipam.PoolKey) (known bool, err error) {
	req, err = c.onBehalf(req)
	if err != nil {
		return false, err
	}
	pool, known := c.Pool(key)
	if known && !req.MayName(pool) {
		return true, NoSuchPool(req, key)
	}
	return known, nil
}

// MayRetain is a *ipam.PolicyError where a claim may not have its block retained: its
// class does not allow it, or the pool that its block, recorded under the name, is from.
func (c *Catalogue) MayRetain(req ipam.Request, recorded string) error {
	of := "IPClass " + req.Class
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
		of = key.String()
	}
	return &ipam.PolicyError{Field: "spec.reclaimPolicy", Value: ipam.ReclaimRetain,
		Remedy: of + " does not allow it (allowRetain): leave it Delete"}
}

// Keeping is for how long class and pool have the block of a record kept.
func (c *Catalogue) Keeping(record ipam.Record) ipam.Keeping {
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

// TermsOfAddress are those on which an address is recorded that an IPAddress has already.
func (c *Catalogue) TermsOfAddress(addr netip.Addr, class string) ipam.Terms {
	terms := ipam.Terms{Class: class, Block: netip.PrefixFrom(addr, addr.BitLen()), Length: addr.BitLen(), Reclaim: ipam.ReclaimDelete}
	if known, ok := c.Class(class); ok {
		terms.Reclaim = known.Reclaim
	}
	return terms
}

// ResolvePool finds from where a pool's own CIDR comes: its parent, or its routing
// domain. The error is a *ipam.MissingError or a *ipam.PolicyError about the parent;
// with it, what is known of the terms all the same is returned.
func (c *Catalogue) ResolvePool(pool ipam.Pool) (Resolution, error) {
	res := Resolution{Terms: ipam.Terms{Family: pool.Family, Length: pool.Length, Block: pool.CIDR, Reclaim: ipam.ReclaimDelete}}
	if !pool.IsChild() {
		res.Pools = []ipam.Pool{{Key: pool.Home, CIDR: pool.Family.All(), Family: pool.Family}}
		return res, nil
	}
	req, err := c.onBehalf(pool.ParentRequest())
	if err != nil {
		return Resolution{}, err
	}
	parent, ok := c.Pool(pool.Home)
	if !ok || !req.MayName(parent) {
		return res, noPool(req, v1alpha1.ReasonParentNotReady, "parent")
	}
	if res.Terms.Family == "" {
		res.Terms.Family = parent.Family
	}
	if err := allOfParent(res.Terms, parent); err != nil {
		return res, err
	}
	if err := c.PoolReady(parent); err != nil {
		return res, missing(v1alpha1.ReasonParentNotReady, "%s", err.Error())
	}
	pools, _, err := res.Terms.Fitting([]ipam.Pool{parent})
	if err == nil {
		pools, _, err = possible(res.Terms, pools)
	}
	res.Pools = pools
	return res, err
}

// allOfParent is a *ipam.PolicyError for a child pool that is as large as its parent.
func allOfParent(terms ipam.Terms, parent ipam.Pool) error {
	if !parent.CIDR.IsValid() || terms.Length != parent.CIDR.Bits() {
		return nil
	}
	return &ipam.PolicyError{Field: "spec.prefixLength", Value: terms.Length, Remedy: "is all of the parent " + parent.CIDR.String() + ": ask for a smaller block"}
}

// ParentNeedsGrant reports whether to name its parent takes of a pool's creator the
// right to use that, as far as follows from what this process has seen.
func (c *Catalogue) ParentNeedsGrant(pool ipam.Pool) bool {
	if !pool.IsChild() {
		return false
	}
	parent, ok := c.Pool(pool.Home)
	if !ok {
		parent.Key = pool.Home
	}
	return pool.ParentRequest().NeedsGrant(parent)
}

// Descends reports whether a pool is the ancestor itself or below it, as far as
// this process has seen.
func (c *Catalogue) Descends(pool, ancestor ipam.PoolKey) bool {
	for seen := map[ipam.PoolKey]bool{}; !seen[pool]; {
		if pool == ancestor {
			return true
		}
		seen[pool] = true
		parent, ok := c.Pool(pool)
		if !ok {
			return false
		}
		pool = parent.Home
	}
	return false
}
