package allocator

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Catalogue is what this process has seen of pools and classes, indexed as
// requests look for them. The zero value is not usable.
type Catalogue struct {
	mu sync.RWMutex
	// pools by their namespace, which is empty for cluster-scoped ones, so that
	// one namespace's are looked for without regard to another's.
	pools map[string]map[ipam.PoolKey]ipam.Pool
	// byClass and then by namespace.
	byClass    map[string]map[string]map[ipam.PoolKey]bool
	classes    map[string]ClassEntry
	namespaces projects
	platform   string
	// clusters are Cluster API's, with whether they are paused; nil where nobody
	// tells of them.
	clusters map[ipam.Name]bool
	// listeners are told of changes, outside the lock.
	listeners []*listener
	// changed is closed at the next change.
	changed chan struct{}
}

// ClassEntry is a class with what decides between two defaults.
type ClassEntry struct {
	ipam.Class
	Default bool
	Created time.Time
}

// NewCatalogue is an empty catalogue. The platform's own project may be empty.
func NewCatalogue(platform string) *Catalogue {
	return &Catalogue{
		platform:   platform,
		namespaces: newProjects(),
		pools:      map[string]map[ipam.PoolKey]ipam.Pool{},
		byClass:    map[string]map[string]map[ipam.PoolKey]bool{},
		classes:    map[string]ClassEntry{},
		changed:    make(chan struct{}),
	}
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

// listener is notified of changes.
type listener struct{ notify func(Entry) }

func notifyAll(listeners []*listener, entry Entry) {
	for _, l := range listeners {
		l.notify(entry)
	}
}

// Listen calls f after every change, once the catalogue has it, until stop is called: it
// may still be called for a change that came before. f must return at once.
func (c *Catalogue) Listen(f func(Entry)) (stop func()) {
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

// Entry is what has changed in the catalogue.
type Entry struct {
	// Namespace is that whose project changed, and then all else is zero.
	Namespace string
	// Pool, with its labels; zero where it is a class that changed.
	Pool   ipam.PoolKey
	Labels map[string]string
	// Unpaused says that the pool was paused before.
	Unpaused bool
	// Classes that are concerned: the class itself, or those that the pool
	// backs or backed.
	Classes []string
}

// SetPool enters a pool, or its new state.
func (c *Catalogue) SetPool(pool ipam.Pool) {
	c.tell(func() (Entry, bool) {
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
		return Entry{
			Pool: pool.Key, Labels: pool.Labels, Unpaused: before.Paused && !pool.Paused,
			Classes: slices.Concat(before.Classes, pool.Classes),
		}, !reflect.DeepEqual(before, pool)
	})
}

// DropPool forgets a pool.
func (c *Catalogue) DropPool(key ipam.PoolKey) {
	c.tell(func() (Entry, bool) {
		before, ok := c.pools[key.Namespace][key]
		c.remove(before)
		return Entry{Pool: key, Labels: before.Labels, Classes: before.Classes}, ok
	})
}

// tell makes a change, and tells of it if it was one.
func (c *Catalogue) tell(change func() (Entry, bool)) {
	c.mu.Lock()
	entry, changed := change()
	listeners := c.listeners
	c.mu.Unlock()
	if changed {
		notifyAll(listeners, entry)
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
	c.tell(func() (Entry, bool) {
		before := c.classes[class.Name]
		c.classes[class.Name] = class
		return Entry{Classes: []string{class.Name}}, before != class
	})
}

// DropClass forgets a class.
func (c *Catalogue) DropClass(name string) {
	c.tell(func() (Entry, bool) {
		_, ok := c.classes[name]
		delete(c.classes, name)
		return Entry{Classes: []string{name}}, ok
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

// PoolsOf are the pools that back a class: cluster-scoped ones, and those of one
// namespace, which may be empty.
func (c *Catalogue) PoolsOf(namespace, class string) []ipam.Pool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var pools []ipam.Pool
	for _, of := range seenFrom(namespace) {
		for key := range c.byClass[class][of] {
			pools = append(pools, c.pools[of][key])
		}
	}
	return pools
}

// PoolsOfAll are the keys of the pools that back a class, whosever they are.
func (c *Catalogue) PoolsOfAll(class string) []ipam.PoolKey {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var keys []ipam.PoolKey
	for _, pools := range c.byClass[class] {
		keys = slices.AppendSeq(keys, maps.Keys(pools))
	}
	return keys
}

// PoolsWhere are the pools whose labels are selected: cluster-scoped ones, and
// those of one namespace, which may be empty.
func (c *Catalogue) PoolsWhere(namespace string, selects func(map[string]string) bool) []ipam.Pool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var pools []ipam.Pool
	for _, of := range seenFrom(namespace) {
		for _, pool := range c.pools[of] {
			if selects(pool.Labels) {
				pools = append(pools, pool)
			}
		}
	}
	return pools
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
// two defaults the older one counts.
func (c *Catalogue) DefaultClass(family ipam.Family, test func(ClassEntry) bool) (ClassEntry, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, class := range slices.SortedFunc(maps.Values(c.classes), olderFirst) {
		if class.Default && class.Family == family && test(class) {
			return class, true
		}
	}
	return ClassEntry{}, false
}

func olderFirst(a, b ClassEntry) int {
	if by := a.Created.Compare(b.Created); by != 0 {
		return by
	}
	return strings.Compare(a.Name, b.Name)
}
