package inventory

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

const (
	// listEvery is how often all pools and classes are listed live at most, however many
	// requests find something missing.
	listEvery = time.Second
	// listWithin bounds one such list.
	listWithin = 2 * time.Second
	// watchDelay is how long an object that was just created may take to be seen by the
	// watch.
	watchDelay = 50 * time.Millisecond
)

// Refresh reads live what a request names, for caches may be behind. All requests share
// a list of pools and classes, which is made once in listEvery at most: within that time
// of the last one there is none, and only the watch is waited for, for as long as it is
// usually behind.
func (c *Catalogue) Refresh(ctx context.Context, live client.Reader, req ipam.Request) error {
	switch {
	case req.Pool != (ipam.PoolKey{}):
		pool := v1alpha1.NewPool(v1alpha1.PoolKind(req.Pool.Kind))
		pool.SetNamespace(req.Pool.Namespace)
		pool.SetName(req.Pool.Name)
		return refresh(ctx, live, string(req.Pool.Kind), pool, c.readPool)
	case req.Class != "":
		if err := refresh(ctx, live, "IPClass", &v1alpha1.IPClass{ObjectMeta: metav1.ObjectMeta{Name: req.Class}}, c.readClassAlone); err != nil {
			return err
		}
		class, _ := c.Class(req.Class)
		if backing, _ := c.PoolsOf(req.Namespace(), class.Class); len(backing) > 0 {
			return nil
		}
	}
	return c.list(ctx, live)
}

func (c *Catalogue) readPool(obj v1alpha1.Pool) { c.live.read(obj, func() { c.enterPool(obj) }) }

func (c *Catalogue) readClass(obj *v1alpha1.IPClass) { c.live.read(obj, func() { c.enterClass(obj) }) }

// readClassAlone enters a class that was read without the others. Whether it is the default
// is left as it was: which class has become the default in its place is not known yet, and the
// watch shows it first.
func (c *Catalogue) readClassAlone(obj *v1alpha1.IPClass) {
	c.live.read(obj, func() {
		if known, ok := c.Class(obj.Name); ok && known.Default {
			obj = obj.DeepCopy()
			metav1.SetMetaDataAnnotation(&obj.ObjectMeta, v1alpha1.AnnotationDefaultClass, "true")
		}
		c.enterClass(obj)
	})
}

// list lists pools and classes live, together with all that ask for it at that time.
func (c *Catalogue) list(ctx context.Context, live client.Reader) error {
	if c.live.isFresh() {
		ctx, cancel := context.WithTimeout(ctx, watchDelay)
		defer cancel()
		c.awaitChange(ctx)
		return nil
	}
	done := c.live.lists.DoChan("", func() (any, error) {
		if c.live.isFresh() { // another has just done it
			return nil, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listWithin)
		defer cancel()
		err := c.listAll(ctx, live)
		if err == nil {
			c.live.justListed()
		}
		return nil, err
	})
	select {
	case result := <-done:
		return result.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isFresh reports whether the last list was a moment ago.
func (l *liveReads) isFresh() bool {
	l.listed.Lock()
	defer l.listed.Unlock()
	return !l.listed.last.IsZero() && l.clock.Since(l.listed.last) < listEvery
}

func (l *liveReads) justListed() {
	l.listed.Lock()
	defer l.listed.Unlock()
	l.listed.last = l.clock.Now()
}

func (c *Catalogue) listAll(ctx context.Context, live client.Reader) error {
	classes, pools, locals := &v1alpha1.IPClassList{}, &v1alpha1.IPPoolList{}, &v1alpha1.LocalIPPoolList{}
	for _, list := range []client.ObjectList{classes, pools, locals} {
		if err := live.List(ctx, list); err != nil {
			return fmt.Errorf("listing classes and pools: %w", err)
		}
	}
	defaultsFirst(classes.Items)
	for i := range classes.Items {
		c.readClass(&classes.Items[i])
	}
	for i := range pools.Items {
		c.readPool(&pools.Items[i])
	}
	for i := range locals.Items {
		c.readPool(&locals.Items[i])
	}
	return nil
}

func refresh[T client.Object](ctx context.Context, live client.Reader, kind string, named T, take func(T)) error {
	key := client.ObjectKeyFromObject(named)
	err := live.Get(ctx, key, named)
	switch {
	case kubeutil.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading %s %s: %w", kind, key.Name, err)
	}
	take(named)
	return nil
}

// KnowNamespace sees to it that the namespace's project is known: one that was
// just made may not have been seen yet.
func (c *Catalogue) KnowNamespace(ctx context.Context, live client.Reader, name string) error {
	if _, ok := c.Tenant(name); ok {
		return nil
	}
	namespace := namespaces()
	namespace.Name = name
	return refresh(ctx, live, "namespace", namespace, c.takeNamespace)
}
