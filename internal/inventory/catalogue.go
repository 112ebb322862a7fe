// Package catalogue keeps pools, classes, namespaces and Clusters as this process last
// saw them. From a request it finds the terms and the pools that may serve it, and it
// answers who may use, name, keep or know what.
//
// Pools are entered into the ledger too, so that both know the same.
//
// All methods may be called from any goroutine, on every replica. There is one lock,
// under which nothing of another package is called.
package inventory

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"sync"

	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// Options are what a Catalogue is given when it is made.
type Options struct {
	// Ledger gets the pools, and is asked how full they are and whether their own CIDR
	// is recorded.
	Ledger *ledger.Ledger
	// Namespace is the operator's, where the records of pools live.
	Namespace string
	// PlatformProject is the platform's own project; empty: none is.
	PlatformProject string
	// DefaultFamily is that of requests that name no class, no pool and no family.
	// Default: IPv4.
	DefaultFamily ipam.Family
	// Clock paces live lists. Nil: the real one.
	Clock clock.PassiveClock
}

// Catalogue is what this process has seen of pools, classes, namespaces and Clusters,
// indexed as requests look for them. The zero value is not usable.
type Catalogue struct {
	ledger        *ledger.Ledger
	namespace     string
	platform      string
	defaultFamily ipam.Family
	// live is what was read past the caches.
	live *liveReads
	// follower is called with what the watch shows.
	follower Follower

	mu sync.RWMutex
	// pools by their namespace, which is empty for cluster-scoped ones, so that
	// one namespace's are looked for without regard to another's.
	pools map[string]map[ipam.PoolKey]ipam.Pool
	// byClass and then by namespace.
	byClass    map[string]map[string]map[ipam.PoolKey]bool
	classes    map[string]ClassEntry
	namespaces projects
	// clusters are Cluster API's, with whether they are paused; nil where they are not
	// watched.
	clusters map[ipam.Name]bool
	// listeners are notified of changes, outside the lock.
	listeners []*listener
	// changed is closed at the next change.
	changed chan struct{}
}

// New is an empty catalogue.
func New(o Options) *Catalogue {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Catalogue{
		ledger: o.Ledger, namespace: o.Namespace, platform: o.PlatformProject,
		defaultFamily: cmp.Or(o.DefaultFamily, ipam.IPv4),
		live:          newLiveReads(o.Clock),
		namespaces:    newProjects(),
		pools:         map[string]map[ipam.PoolKey]ipam.Pool{},
		byClass:       map[string]map[string]map[ipam.PoolKey]bool{},
		classes:       map[string]ClassEntry{},
		changed:       make(chan struct{}),
	}
}

// SetPool enters a pool, or its new state.
func (c *Catalogue) SetPool(pool ipam.Pool) {
	c.change(func() (Change, bool) {
		namespace := pool.Key.Namespace
		before := c.pools[namespace][pool.Key]
		c.remove(before)
		put(c.pools, namespace, pool.Key, pool)
		for _, class := range pool.Classes {
			if c.byClass[class] == nil {
				c.byClass[class] = map[string]map[ipam.PoolKey]bool{}
			}
			put(c.byClass[class], namespace, pool.Key, true)
		}
		return Change{
			Pool: pool.Key, Labels: pool.Labels, Unpaused: before.Paused && !pool.Paused,
			Classes: slices.Concat(before.Classes, pool.Classes),
		}, !reflect.DeepEqual(before, pool)
	})
}

// DropPool forgets a pool.
func (c *Catalogue) DropPool(key ipam.PoolKey) {
	c.change(func() (Change, bool) {
		before, ok := c.pools[key.Namespace][key]
		c.remove(before)
		return Change{Pool: key, Labels: before.Labels, Classes: before.Classes}, ok
	})
}

// remove takes a pool out, and out of the index.
func (c *Catalogue) remove(pool ipam.Pool) {
	namespace := pool.Key.Namespace
	drop(c.pools, namespace, pool.Key)
	for _, class := range pool.Classes {
		if drop(c.byClass[class], namespace, pool.Key); len(c.byClass[class]) == 0 {
			delete(c.byClass, class)
		}
	}
}

// put enters into a map of maps, and drop takes out of one, which keeps no empty
// map.
func put[V any](into map[string]map[ipam.PoolKey]V, namespace string, key ipam.PoolKey, v V) {
	if into[namespace] == nil {
		into[namespace] = map[ipam.PoolKey]V{}
	}
	into[namespace][key] = v
}

func drop[V any](from map[string]map[ipam.PoolKey]V, namespace string, key ipam.PoolKey) {
	if delete(from[namespace], key); len(from[namespace]) == 0 {
		delete(from, namespace)
	}
}

// SetClass enters a class, or its new state.
func (c *Catalogue) SetClass(class ClassEntry) {
	c.change(func() (Change, bool) {
		before := c.classes[class.Name]
		c.classes[class.Name] = class
		return Change{Classes: []string{class.Name}}, before != class
	})
}

// DropClass forgets a class.
func (c *Catalogue) DropClass(name string) {
	c.change(func() (Change, bool) {
		_, ok := c.classes[name]
		delete(c.classes, name)
		return Change{Classes: []string{name}}, ok
	})
}

// Pool is the pool of a key.
func (c *Catalogue) Pool(key ipam.PoolKey) (ipam.Pool, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	pool, ok := c.pools[key.Namespace][key]
	return pool, ok
}

// Class is the class of a name.
func (c *Catalogue) Class(name string) (ClassEntry, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	class, ok := c.classes[name]
	return class, ok
}

// Pools are the keys of all pools.
func (c *Catalogue) Pools() []ipam.PoolKey {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var keys []ipam.PoolKey
	for _, pools := range c.pools {
		keys = slices.AppendSeq(keys, maps.Keys(pools))
	}
	return keys
}

// PoolsOf returns the pools that back a class: cluster-scoped ones, and those of one
// namespace, which may be empty; and those that name the class and that it excludes.
func (c *Catalogue) PoolsOf(namespace string, class ipam.Class) (backing, excluded []ipam.Pool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, of := range seenFrom(namespace) {
		for key := range c.byClass[class.Name][of] {
			pool := c.pools[of][key]
			if class.Excludes(pool) != nil {
				excluded = append(excluded, pool)
				continue
			}
			backing = append(backing, pool)
		}
	}
	return backing, excluded
}

// PoolsNaming returns the keys of the pools of all namespaces that name a class.
func (c *Catalogue) PoolsNaming(class string) []ipam.PoolKey {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var keys []ipam.PoolKey
	for _, pools := range c.byClass[class] {
		keys = slices.AppendSeq(keys, maps.Keys(pools))
	}
	return keys
}

// PoolsWhere are the pools whose labels are selected: cluster-scoped ones, and
// those of one namespace, which may be empty. The selector is evaluated outside the lock.
func (c *Catalogue) PoolsWhere(namespace string, selects func(map[string]string) bool) []ipam.Pool {
	var pools []ipam.Pool
	c.mu.RLock()
	for _, of := range seenFrom(namespace) {
		pools = slices.AppendSeq(pools, maps.Values(c.pools[of]))
	}
	c.mu.RUnlock()
	return slices.DeleteFunc(pools, func(pool ipam.Pool) bool { return !selects(pool.Labels) })
}

// seenFrom are the namespaces whose pools are looked for from one, the empty one
// for cluster-scoped pools.
func seenFrom(namespace string) []string {
	if namespace == "" {
		return []string{""}
	}
	return []string{"", namespace}
}

// DefaultClass is the default class of a family among those that pass the test. Of
// several defaults DefaultOf decides.
func (c *Catalogue) DefaultClass(family ipam.Family, test func(ClassEntry) bool) (ClassEntry, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var classes []ClassEntry
	for _, class := range c.classes {
		if class.Default && class.Family == family && test(class) {
			classes = append(classes, class)
		}
	}
	return DefaultOf(classes)
}
