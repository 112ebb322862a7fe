package inventory

import (
	"cmp"
	"slices"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// ClassesFor returns the classes that a request may name, by name. Only the default that counts for
// the request is marked as one.
func (c *Catalog) ClassesFor(req ipam.Request) []ClassEntry {
	req, err := c.withTenant(req)
	if err != nil {
		return nil
	}
	mayUse := func(class ClassEntry) bool { return req.Tenant.MayUse(class.Visibility, class.Project) }
	defaults := map[string]bool{}
	for _, family := range []ipam.Family{ipam.IPv4, ipam.IPv6} {
		if class, ok := c.DefaultClass(family, mayUse); ok {
			defaults[class.Name] = true
		}
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	var classes []ClassEntry
	for name, class := range c.classes {
		if mayUse(class) {
			class.Default = defaults[name]
			classes = append(classes, class)
		}
	}
	slices.SortFunc(classes, func(a, b ClassEntry) int { return cmp.Compare(a.Name, b.Name) })
	return classes
}

// ClassLimits returns the limits of the classes that have one, by class.
func (c *Catalog) ClassLimits() map[string]ipam.Limit {
	c.mu.RLock()
	defer c.mu.RUnlock()
	limits := map[string]ipam.Limit{}
	for name, class := range c.classes {
		if class.Limit.IsSet() {
			limits[name] = class.Limit
		}
	}
	return limits
}

// A namespace's own pool that belongs to one of Cluster API's Clusters hands out nothing while that
// Cluster is missing or paused: during a move the pool may exist before the addresses that are in
// use. If Cluster API is not installed, the label has no such meaning.

// TrackClusters makes the catalog take Clusters into account.
func (c *Catalog) TrackClusters() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clusters == nil {
		c.clusters = map[ipam.Name]bool{}
	}
}

// SetCluster stores a Cluster, and whether it is paused.
func (c *Catalog) SetCluster(name ipam.Name, paused bool) {
	c.changeCluster(name, func() bool {
		previous, ok := c.clusters[name]
		c.clusters[name] = paused
		return !ok || previous != paused
	})
}

// DropCluster removes a Cluster.
func (c *Catalog) DropCluster(name ipam.Name) {
	c.changeCluster(name, func() bool {
		_, ok := c.clusters[name]
		delete(c.clusters, name)
		return ok
	})
}

// changeCluster applies a change of a Cluster, which is one of all of its pools.
func (c *Catalog) changeCluster(name ipam.Name, apply func() bool) {
	c.applyChange(func() (changes []Change) {
		if !apply() {
			return nil
		}
		for _, pool := range c.pools[name.Namespace] {
			if pool.Labels[v1alpha1.LabelCluster] == name.Name {
				changes = append(changes, Change{Pool: pool.Key, Labels: pool.Labels, Classes: pool.Classes, Unpaused: !c.clusters[name]})
			}
		}
		return changes
	})
}

// clusterPauses returns the reason why a pool's Cluster keeps it from handing out blocks, if so.
func (c *Catalog) clusterPauses(pool ipam.Pool) string {
	cluster := pool.Labels[v1alpha1.LabelCluster]
	if cluster == "" || pool.Key.Kind != ipam.PoolKindLocalIPPool {
		return ""
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	paused, ok := c.clusters[ipam.Name{Namespace: pool.Key.Namespace, Name: cluster}]
	switch {
	case c.clusters == nil || ok && !paused:
		return ""
	case ok:
		return "the Cluster " + cluster + " to which it belongs is paused: set its spec.paused to false, or use another pool"
	}
	return "there is no Cluster " + cluster + ", to which it belongs: create it, or take the label " + v1alpha1.LabelCluster + " off"
}

// NotifyInCluster notifies the listeners of a change of all pools of the in-cluster provider's kinds:
// that provider has started or stopped.
func (c *Catalog) NotifyInCluster() {
	c.applyChange(func() (changes []Change) {
		for _, pools := range c.pools {
			for _, pool := range pools {
				if pool.Key.Kind.IsInCluster() {
					changes = append(changes, Change{Pool: pool.Key, Labels: pool.Labels, Unpaused: true})
				}
			}
		}
		return changes
	})
}

// splitReady returns the pools that can hand out blocks, and the reasons why the others cannot.
func (c *Catalog) splitReady(pools []ipam.Pool) (ready []ipam.Pool, unready []ipam.PoolResult) {
	for _, pool := range pools {
		if err := c.PoolReady(pool); err != nil {
			unready = append(unready, ipam.PoolResult{Pool: pool.Key, Err: err})
			continue
		}
		ready = append(ready, pool)
	}
	return ready, unready
}

// PoolReady returns the reason why a pool cannot hand out blocks, as a *ipam.MissingError.
func (c *Catalog) PoolReady(pool ipam.Pool) error {
	switch {
	case pool.Terminating:
		return notReadyError(ipam.Terminating, "%s is being deleted: use another pool", pool.Key)
	case pool.Paused:
		return notReadyError(ipam.Paused, "%s is paused by an annotation: have it removed, or use another pool", pool.Key)
	case !pool.CIDR.IsValid():
		return notReadyError(ipam.NotReady, "%s has no CIDR yet: wait until it has, or use another pool", pool.Key)
	}
	if reason := c.clusterPauses(pool); reason != "" {
		return notReadyError(ipam.Paused, "%s: %s", pool.Key, reason)
	}
	if c.ledger.IsOpen(pool) {
		return nil
	}
	switch state := c.PoolState(pool); {
	case state.Rival != nil:
		return notReadyError(ipam.NotReady, "the CIDR of %s conflicts with another allocation: have one of the two released, or use another pool", pool.Key)
	case state.Record.State == ipam.StateReleasing || state.Record.Terminating:
		return notReadyError(ipam.Terminating, "%s is being released: use another pool", pool.Key)
	}
	return notReadyError(ipam.NotReady, "the CIDR of %s is not recorded yet: wait until it is, or use another pool", pool.Key)
}

func notReadyError(verdict ipam.Verdict, format string, args ...any) *ipam.MissingError {
	err := missingError(v1alpha1.ReasonPoolNotReady, format, args...)
	err.Verdict = verdict
	return err
}

// PoolState returns the state of a pool's own record.
func (c *Catalog) PoolState(pool ipam.Pool) ledger.PoolState {
	return c.ledger.State(pool)
}

// RecordOfPool returns the name of a pool's first own record.
func (c *Catalog) RecordOfPool(pool ipam.PoolKey) ipam.Name {
	return convert.RecordOfPool(c.namespace, pool)
}

// RecordOfEdit returns the name of the own record that an edit makes of a stored pool; the zero Name for
// a pool that occupies all of its CIDR.
func (c *Catalog) RecordOfEdit(pool ipam.Pool) ipam.Name {
	if pool.Occupied == nil {
		return ipam.Name{}
	}
	return convert.RecordOfEdit(c.namespace, pool)
}
