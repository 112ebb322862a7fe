// Package inventory keeps pools, classes, namespaces and Clusters as this process last saw them,
// and records pools in the ledger too. From a request it finds the terms and the pools that may
// serve it, and it decides which requests and namespaces can use or name a pool, have a block kept,
// and see a holder.
package inventory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// Options holds the dependencies and settings of a Catalog.
type Options struct {
	// Ledger receives the pools, and reports how full they are and whether their CIDR is recorded.
	Ledger *ledger.Ledger
	// Namespace is the operator's namespace, in which the records of pools live.
	Namespace string
	// PlatformProject is the platform's own project; empty: there is none.
	PlatformProject string
	// DefaultFamily is the family of requests that state nothing. Default: IPv4.
	DefaultFamily ipam.Family
	// InCluster has the pools of the in-cluster provider's kinds read, too.
	InCluster bool
	// Clock paces live lists. Nil: the real one.
	Clock clock.PassiveClock
}

// Catalog holds the objects that this process has seen, indexed by the keys with which requests
// look for them. The zero value is not usable.
type Catalog struct {
	ledger          *ledger.Ledger
	namespace       string
	platformProject string
	defaultFamily   ipam.Family
	inCluster       bool
	// live holds the objects that were read past the caches.
	live *liveReads
	// follower is called with each object that the watch shows.
	follower Follower

	mu sync.RWMutex
	// pools indexes the pools by namespace, empty for cluster-scoped ones, so that a search in one
	// does not read the pools of others.
	pools map[string]map[ipam.PoolKey]ipam.Pool
	// byClass indexes the pools by class and then by namespace.
	byClass    map[string]map[string]map[ipam.PoolKey]bool
	classes    map[string]ClassEntry
	namespaces projects
	// clusters holds the Clusters of Cluster API, and whether they are paused; nil: they are not
	// watched.
	clusters map[ipam.Name]bool
	// listeners are notified of changes, outside the lock.
	listeners kubeutil.Listeners[Change]
}

// New returns an empty catalog.
func New(o Options) *Catalog {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Catalog{
		ledger: o.Ledger, namespace: o.Namespace, platformProject: o.PlatformProject,
		defaultFamily: cmp.Or(o.DefaultFamily, ipam.IPv4), inCluster: o.InCluster,
		live:       newLiveReads(o.Clock),
		namespaces: newProjects(),
		pools:      map[string]map[ipam.PoolKey]ipam.Pool{},
		byClass:    map[string]map[string]map[ipam.PoolKey]bool{},
		classes:    map[string]ClassEntry{},
		follower:   Follower{Pool: func(v1alpha1.Pool, bool) {}, Namespace: func(string) {}},
	}
}

// SetPool stores a pool, or its new state.
func (c *Catalog) SetPool(pool ipam.Pool) {
	c.applyChange(func() []Change {
		namespace := pool.Key.Namespace
		previous := c.pools[namespace][pool.Key]
		c.removePool(previous)
		putEntry(c.pools, namespace, pool.Key, pool)
		for _, class := range pool.Classes {
			if c.byClass[class] == nil {
				c.byClass[class] = map[string]map[ipam.PoolKey]bool{}
			}
			putEntry(c.byClass[class], namespace, pool.Key, true)
		}
		return changeIf(!reflect.DeepEqual(previous, pool), Change{
			Pool: pool.Key, Labels: pool.Labels, Unpaused: previous.Paused && !pool.Paused,
			Classes: slices.Concat(previous.Classes, pool.Classes),
		})
	})
}

// DropPool removes a pool.
func (c *Catalog) DropPool(key ipam.PoolKey) {
	c.applyChange(func() []Change {
		previous, ok := c.pools[key.Namespace][key]
		c.removePool(previous)
		return changeIf(ok, Change{Pool: key, Labels: previous.Labels, Classes: previous.Classes})
	})
}

func (c *Catalog) removePool(pool ipam.Pool) {
	namespace := pool.Key.Namespace
	removeEntry(c.pools, namespace, pool.Key)
	for _, class := range pool.Classes {
		if removeEntry(c.byClass[class], namespace, pool.Key); len(c.byClass[class]) == 0 {
			delete(c.byClass, class)
		}
	}
}

// putEntry adds an entry to a map of maps, removeEntry removes one, and keeps no empty map.
func putEntry[V any](entries map[string]map[ipam.PoolKey]V, namespace string, key ipam.PoolKey, v V) {
	if entries[namespace] == nil {
		entries[namespace] = map[ipam.PoolKey]V{}
	}
	entries[namespace][key] = v
}

func removeEntry[V any](entries map[string]map[ipam.PoolKey]V, namespace string, key ipam.PoolKey) {
	if delete(entries[namespace], key); len(entries[namespace]) == 0 {
		delete(entries, namespace)
	}
}

// SetClass stores a class, or its new state.
func (c *Catalog) SetClass(class ClassEntry) {
	c.applyChange(func() []Change {
		previous := c.classes[class.Name]
		c.classes[class.Name] = class
		return changeIf(previous != class, Change{Classes: []string{class.Name}})
	})
}

// DropClass removes a class.
func (c *Catalog) DropClass(name string) {
	c.applyChange(func() []Change {
		_, ok := c.classes[name]
		delete(c.classes, name)
		return changeIf(ok, Change{Classes: []string{name}})
	})
}

// Pool returns the pool of a key.
func (c *Catalog) Pool(key ipam.PoolKey) (ipam.Pool, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	pool, ok := c.pools[key.Namespace][key]
	return pool, ok
}

// Class returns the class of a name.
func (c *Catalog) Class(name string) (ClassEntry, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	class, ok := c.classes[name]
	return class, ok
}

// Pools returns the keys of all pools.
func (c *Catalog) Pools() []ipam.PoolKey {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var keys []ipam.PoolKey
	for _, pools := range c.pools {
		keys = slices.AppendSeq(keys, maps.Keys(pools))
	}
	return keys
}

// PoolsOf returns the cluster-scoped pools, and those of one namespace, which may be empty, that
// back a class, and those that name it but that it excludes.
func (c *Catalog) PoolsOf(namespace string, class ipam.Class) (backing, excluded []ipam.Pool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, visible := range visibleNamespaces(namespace) {
		for key := range c.byClass[class.Name][visible] {
			pool := c.pools[visible][key]
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
func (c *Catalog) PoolsNaming(class string) []ipam.PoolKey {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var keys []ipam.PoolKey
	for _, pools := range c.byClass[class] {
		keys = slices.AppendSeq(keys, maps.Keys(pools))
	}
	return keys
}

// PoolsWhere returns the cluster-scoped pools, and those of one namespace, whose labels are
// selected. The selector is evaluated outside the lock.
func (c *Catalog) PoolsWhere(namespace string, selects func(map[string]string) bool) []ipam.Pool {
	var pools []ipam.Pool
	c.mu.RLock()
	for _, visible := range visibleNamespaces(namespace) {
		pools = slices.AppendSeq(pools, maps.Values(c.pools[visible]))
	}
	c.mu.RUnlock()
	return slices.DeleteFunc(pools, func(pool ipam.Pool) bool { return !selects(pool.Labels) })
}

// visibleNamespaces returns the namespaces whose pools a request finds; "" is for cluster-scoped
// pools.
func visibleNamespaces(namespace string) []string {
	if namespace == "" {
		return []string{""}
	}
	return []string{"", namespace}
}

// DefaultClass returns the default class of a family among those that pass the test. See DefaultOf.
func (c *Catalog) DefaultClass(family ipam.Family, test func(ClassEntry) bool) (ClassEntry, bool) {
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

// Change represents a change in the catalog.
type Change struct {
	// Namespace is the namespace whose project changed; all other fields are zero then.
	Namespace string
	// Pool, with its labels; zero if a class changed.
	Pool   ipam.PoolKey
	Labels map[string]string
	// Unpaused reports whether the pool may have been paused before.
	Unpaused bool
	// Classes concerned: the class itself, or the classes that the pool backs or backed.
	Classes []string
}

// Listen calls f after every change until stop is called, and perhaps once more for an earlier one.
// f must return at once.
func (c *Catalog) Listen(f func(Change)) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listeners.Add(&c.mu, f)
}

func changeIf(isChanged bool, change Change) []Change {
	if !isChanged {
		return nil
	}
	return []Change{change}
}

// applyChange calls apply under the lock, then notifies the listeners of the changes that it returns,
// outside the lock.
func (c *Catalog) applyChange(apply func() []Change) {
	c.mu.Lock()
	changes, listeners := apply(), c.listeners
	c.mu.Unlock()
	for _, change := range changes {
		listeners.Notify(change)
	}
}

// awaitChange waits for the next change of a pool or class, or until ctx is done. Listeners that
// were added before it began are notified first: the queue knows the older waiters of that pool then.
func (c *Catalog) awaitChange(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := c.Listen(func(change Change) {
		if change.Namespace == "" {
			cancel()
		}
	})
	defer stop()
	<-ctx.Done()
}

// Follower holds functions that are called with the objects that the watch shows, in its order,
// once the catalog has them. They delay that watch.
type Follower struct {
	// Pool is called with each pool, and with the last state of a deleted pool.
	Pool func(pool v1alpha1.Pool, exists bool)
	// Namespace is called when a namespace appears, or is gone. Neither is a Change: nothing in it
	// has been reconciled for another project.
	Namespace func(name string)
}

// Follow sets both functions. It must be called before Feed.
func (c *Catalog) Follow(f Follower) { c.follower = f }

func missingError(reason, format string, args ...any) *ipam.MissingError {
	return &ipam.MissingError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// noPoolError returns the same error for a pool that does not exist and for one that the request
// may not use. alternative is the word for a pool that it could name instead.
func noPoolError(req ipam.Request, reason, alternative string) *ipam.MissingError {
	if req.Pool.Kind != ipam.PoolKindIPPool {
		return missingError(reason, "there is no %s %q: create it, or name another %s", req.Pool.Kind, req.Pool.Name, alternative)
	}
	requester := "namespace"
	if req.Namespace() == "" {
		requester = "pool"
	}
	return missingError(reason, "there is no %s %q that this %s may use: create it, name another %s, or ask for the right to use it and then create this object again",
		req.Pool.Kind, req.Pool.Name, requester, alternative)
}

// NoSuchPool returns the error of MayHold for a pool that does not exist, or may not be used.
func NoSuchPool(req ipam.Request, key ipam.PoolKey) error {
	req.Pool = key
	return noPoolError(req, v1alpha1.ReasonPoolNotFound, "one")
}
