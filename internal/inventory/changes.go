package inventory

import (
	"context"
	"slices"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Change is what has changed in the catalogue.
type Change struct {
	// Namespace is that whose project changed, and then all else is zero.
	Namespace string
	// Pool, with its labels; zero where it is a class that changed.
	Pool   ipam.PoolKey
	Labels map[string]string
	// Unpaused reports whether the pool was paused before.
	Unpaused bool
	// Classes that are concerned: the class itself, or those that the pool
	// backs or backed.
	Classes []string
}

// listener is notified of changes.
type listener struct{ notify func(Change) }

func notifyAll(listeners []*listener, change Change) {
	for _, l := range listeners {
		l.notify(change)
	}
}

// Listen calls f after every change, once the catalogue has it, until stop is called: it
// may still be called for a change that came before. f must return at once.
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

// change makes a change, and notifies the listeners if it was one.
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

// Follower is called with what the watch shows, once the catalogue has it, in the
// watch's order. What it does delays that watch.
type Follower struct {
	// Pool is called with each pool, and with the last state of one that is gone.
	Pool func(pool v1alpha1.Pool, exists bool)
	// Namespace is called when a namespace was not known before, or is gone. Neither is
	// a Change: nothing in it has been reconciled for another project.
	Namespace func(name string)
}

// Follow sets who is called with what the watch shows. To be called before Feed.
func (c *Catalogue) Follow(f Follower) { c.follower = f }
