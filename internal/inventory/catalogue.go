// Package inventory keeps pools, classes, namespaces and Clusters as this process last saw them.
// From a request it finds the terms and the pools that may serve it, and it decides which requests
// and namespaces can use or name a pool, or have a block kept, and which holders they can see.
//
// It records pools in the ledger too, so that both know the same ones.
//
// All methods may be called from any goroutine, on every replica. There is one lock, under which
// nothing of another package is called.
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
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// Options holds the dependencies and settings of a Catalogue.
type Options struct {
	// Ledger receives the pools, and reports how full they are and whether their own CIDR is
	// recorded.
	Ledger *ledger.Ledger
	// Namespace is the operator's namespace, in which the records of pools live.
	Namespace string
	// PlatformProject is the platform's own project; empty: there is none.
	PlatformProject string
	// DefaultFamily is the family of requests that name no class, no pool and no family. Default:
	// IPv4.
	DefaultFamily ipam.Family
	// Clock paces live lists. Nil: the real one.
	Clock clock.PassiveClock
}

// Catalogue holds the pools, classes, namespaces and Clusters that this process has seen, indexed
// by the keys with which requests look for them. The zero value is not usable.
type Catalogue struct {
	ledger        *ledger.Ledger
	namespace     string
	platform      string
	defaultFamily ipam.Family
	// live holds the objects that were read past the caches.
	live *liveReads
	// follower is called with each object that the watch shows.
	follower Follower

	mu sync.RWMutex
	// pools indexes the pools by their namespace, which is empty for cluster-scoped ones, so that a
	// search in one namespace does not read the pools of others.
	pools map[string]map[ipam.PoolKey]ipam.Pool
	// byClass indexes the pools by class and then by namespace.
	byClass    map[string]map[string]map[ipam.PoolKey]bool
	classes    map[string]ClassEntry
	namespaces projects
	// clusters holds the Clusters of Cluster API, and whether they are paused; nil if they are not
	// watched.
	clusters map[ipam.Name]bool
	// listeners are notified of changes, outside the lock.
	listeners []*listener
	// changed is closed at the next change.
	changed chan struct{}
}

// New returns an empty catalog.
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

// SetPool stores a pool, or its new state.
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

// DropPool removes a pool.
func (c *Catalogue) DropPool(key ipam.PoolKey) {
	c.change(func() (Change, bool) {
		before, ok := c.pools[key.Namespace][key]
		c.remove(before)
		return Change{Pool: key, Labels: before.Labels, Classes: before.Classes}, ok
	})
}

// remove removes a pool from the pools and from the index.
func (c *Catalogue) remove(pool ipam.Pool) {
	namespace := pool.Key.Namespace
	drop(c.pools, namespace, pool.Key)
	for _, class := range pool.Classes {
		if drop(c.byClass[class], namespace, pool.Key); len(c.byClass[class]) == 0 {
			delete(c.byClass, class)
		}
	}
}

// put adds an entry to a map of maps. drop removes one, and keeps no empty map.
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

// SetClass stores a class, or its new state.
func (c *Catalogue) SetClass(class ClassEntry) {
	c.change(func() (Change, bool) {
		before := c.classes[class.Name]
		c.classes[class.Name] = class
		return Change{Classes: []string{class.Name}}, before != class
	})
}

// DropClass removes a class.
func (c *Catalogue) DropClass(name string) {
	c.change(func() (Change, bool) {
		_, ok := c.classes[name]
		delete(c.classes, name)
		return Change{Classes: []string{name}}, ok
	})
}

// Pool returns the pool of a key.
func (c *Catalogue) Pool(key ipam.PoolKey) (ipam.Pool, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	pool, ok := c.pools[key.Namespace][key]
	return pool, ok
}

// Class returns the class of a name.
func (c *Catalogue) Class(name string) (ClassEntry, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	class, ok := c.classes[name]
	return class, ok
}

// Pools returns the keys of all pools.
func (c *Catalogue) Pools() []ipam.PoolKey {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var keys []ipam.PoolKey
	for _, pools := range c.pools {
		keys = slices.AppendSeq(keys, maps.Keys(pools))
	}
	return keys
}

// PoolsOf returns the pools that back a class: cluster-scoped ones, and the pools of one namespace,
// which may be empty; and the pools that name the class but that it excludes.
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

// PoolsWhere returns the pools whose labels are selected: cluster-scoped ones, and the pools of one
// namespace, which may be empty. The selector is evaluated outside the lock.
func (c *Catalogue) PoolsWhere(namespace string, selects func(map[string]string) bool) []ipam.Pool {
	var pools []ipam.Pool
	c.mu.RLock()
	for _, of := range seenFrom(namespace) {
		pools = slices.AppendSeq(pools, maps.Values(c.pools[of]))
	}
	c.mu.RUnlock()
	return slices.DeleteFunc(pools, func(pool ipam.Pool) bool { return !selects(pool.Labels) })
}

// seenFrom returns the namespaces whose pools a request from a namespace can find; the empty one is
// for cluster-scoped pools.
func seenFrom(namespace string) []string {
	if namespace == "" {
		return []string{""}
	}
	return []string{"", namespace}
}

// DefaultClass returns the default class of a family among the classes that pass the test.
// DefaultOf decides between several defaults.
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

// Change represents a change in the catalog.
type Change struct {
	// Namespace is the namespace whose project changed; all other fields are zero then.
	Namespace string
	// Pool, with its labels; zero if a class changed.
	Pool   ipam.PoolKey
	Labels map[string]string
	// Unpaused reports whether the pool was paused before.
	Unpaused bool
	// Classes concerned: the class itself, or the classes that the pool backs or backed.
	Classes []string
}

// listener holds a function that is notified of changes.
type listener struct{ notify func(Change) }

func notifyAll(listeners []*listener, change Change) {
	for _, l := range listeners {
		l.notify(change)
	}
}

// Listen calls f after every change, once the catalog has it, until stop is called. After that f
// may still be called for an earlier change. f must return at once.
func (c *Catalogue) Listen(f func(Change)) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	added := &listener{f}
	c.listeners = append(c.listeners, added)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		// Listeners are notified outside the lock, from the slice as it was.
		c.listeners = slices.DeleteFunc(slices.Clone(c.listeners), func(other *listener) bool { return other == added })
	}
}

// change applies a change, and notifies the listeners if anything has changed.
func (c *Catalogue) change(apply func() (Change, bool)) {
	c.mu.Lock()
	change, changed := apply()
	listeners := c.listeners
	c.mu.Unlock()
	if changed {
		notifyAll(listeners, change)
		c.wakeAwaiting()
	}
}

// wakeAwaiting ends every awaitChange.
func (c *Catalogue) wakeAwaiting() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

// awaitChange waits for the next change, or until ctx is done.
func (c *Catalogue) awaitChange(ctx context.Context) {
	c.mu.RLock()
	changed := c.changed
	c.mu.RUnlock()
	select {
	case <-changed:
	case <-ctx.Done():
	}
}

// Follower holds functions that are called with the objects that the watch shows, once the catalog
// has them, in the watch's order. They delay that watch.
type Follower struct {
	// Pool is called with each pool, and with the last state of a deleted pool.
	Pool func(pool v1alpha1.Pool, exists bool)
	// Namespace is called when a namespace appears for the first time, or is gone. Neither is a
	// Change: nothing in it has been reconciled for another project.
	Namespace func(name string)
}

// Follow sets the functions that are called with the objects that the watch shows. It must be
// called before Feed.
func (c *Catalogue) Follow(f Follower) { c.follower = f }

func missing(reason, format string, args ...any) *ipam.MissingError {
	return &ipam.MissingError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// noPool returns the error for a pool that does not exist, and the same one for a pool that the
// request may not use. another is the word for a pool that the request could name instead.
func noPool(req ipam.Request, reason, another string) *ipam.MissingError {
	if req.Pool.Kind != ipam.PoolKindIPPool {
		return missing(reason, "there is no %s %q: create it, or name another %s", req.Pool.Kind, req.Pool.Name, another)
	}
	asking := "namespace"
	if req.Namespace() == "" {
		asking = "pool"
	}
	return missing(reason, "there is no %s %q that this %s may use: create it, name another %s, or ask for the right to use it and then create this object again",
		req.Pool.Kind, req.Pool.Name, asking, another)
}

// NoSuchPool returns the error of MayHold for a pool that does not exist, or may not be used.
func NoSuchPool(req ipam.Request, key ipam.PoolKey) error {
	req.Pool = key
	return noPool(req, v1alpha1.ReasonPoolNotFound, "one")
}
