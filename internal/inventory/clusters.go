package inventory

import (
	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// A namespace's own pool that belongs to one of Cluster API's Clusters hands out
// nothing while that is missing or paused: during a move the pool may be there
// before the addresses that are in use. Where Cluster API is not installed, the
// label has no such meaning.

// KnowClusters begins to regard Clusters, which are set from now on.
func (c *Catalogue) KnowClusters() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clusters == nil {
		c.clusters = map[ipam.Name]bool{}
	}
}

// SetCluster notes a Cluster, and whether it is paused.
func (c *Catalogue) SetCluster(name ipam.Name, paused bool) {
	c.changeCluster(name, func() bool {
		before, known := c.clusters[name]
		c.clusters[name] = paused
		return !known || before != paused
	})
}

// DropCluster forgets a Cluster.
func (c *Catalogue) DropCluster(name ipam.Name) {
	c.changeCluster(name, func() bool {
		_, known := c.clusters[name]
		delete(c.clusters, name)
		return known
	})
}

// changeCluster makes a change, and notifies listeners of the Cluster's pools if it was one.
func (c *Catalogue) changeCluster(name ipam.Name, change func() bool) {
	c.mu.Lock()
	var changes []Change
	if change() {
		for _, pool := range c.pools[name.Namespace] {
			if pool.Labels[v1alpha1.LabelCluster] == name.Name {
				changes = append(changes, Change{Pool: pool.Key, Labels: pool.Labels, Classes: pool.Classes, Unpaused: !c.clusters[name]})
			}
		}
	}
	listeners := c.listeners
	c.mu.Unlock()
	for _, change := range changes {
		notifyAll(listeners, change)
	}
}

// clusterPauses says why the Cluster to which a pool belongs keeps it from handing
// out blocks; empty where it does not.
func (c *Catalogue) clusterPauses(pool ipam.Pool) string {
	cluster := pool.Labels[v1alpha1.LabelCluster]
	if cluster == "" || pool.Key.Namespace == "" {
		return ""
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	paused, known := c.clusters[ipam.Name{Namespace: pool.Key.Namespace, Name: cluster}]
	switch {
	case c.clusters == nil || known && !paused:
		return ""
	case known:
		return "the Cluster " + cluster + " to which it belongs is paused: set its spec.paused to false, or use another pool"
	}
	return "there is no Cluster " + cluster + ", to which it belongs: create it, or take the label " + v1alpha1.LabelCluster + " off"
}
