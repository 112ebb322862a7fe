package inventory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// Feed keeps the catalog, and the ledger's knowledge of pools, up to date from the informers of a
// cache. It must be called once, before the cache is started. The functions that it returns report
// whether the first list of each kind is complete.
func (c *Catalogue) Feed(ctx context.Context, from ctrlcache.Cache) (synced []func() bool, err error) {
	for _, f := range []struct {
		obj     client.Object
		handler cache.ResourceEventHandler
	}{
		{namespaces(), kubeutil.Handler(c.takeNamespace, c.loseNamespace)},
		{&v1alpha1.IPPool{}, kubeutil.Handler(c.takePool, c.losePool)},
		{&v1alpha1.LocalIPPool{}, kubeutil.Handler(c.takePool, c.losePool)},
		{&v1alpha1.IPClass{}, kubeutil.Handler(c.takeClass, c.loseClass)},
	} {
		informer, err := from.GetInformer(ctx, f.obj)
		if err != nil {
			return nil, fmt.Errorf("watching %T: %w", f.obj, err)
		}
		registration, err := informer.AddEventHandler(f.handler)
		if err != nil {
			return nil, fmt.Errorf("watching %T: %w", f.obj, err)
		}
		synced = append(synced, registration.HasSynced)
	}
	return synced, nil
}

// Enter stores a listed pool, class, or metadata of a namespace: for a process that asks questions
// of a catalog, and does not watch.
func (c *Catalogue) Enter(obj client.Object) {
	switch obj := obj.(type) {
	case v1alpha1.Pool:
		c.takePool(obj)
	case *v1alpha1.IPClass:
		c.takeClass(obj)
	case *metav1.PartialObjectMetadata:
		c.takeNamespace(obj)
	}
}

// namespaces returns an object by which namespaces are watched for their labels alone.
func namespaces() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
}

func (c *Catalogue) takeNamespace(obj *metav1.PartialObjectMetadata) {
	_, known := c.Tenant(obj.Name)
	c.SetProject(obj.Name, obj.Labels[v1alpha1.LabelProject])
	if !known {
		c.followNamespace(obj.Name)
	}
}

func (c *Catalogue) loseNamespace(obj *metav1.PartialObjectMetadata) {
	c.DropNamespace(obj.Name)
	c.followNamespace(obj.Name)
}

func (c *Catalogue) followNamespace(name string) {
	if c.follower.Namespace != nil {
		c.follower.Namespace(name)
	}
}

// takePool stores a pool as the watch shows it.
func (c *Catalogue) takePool(obj v1alpha1.Pool) {
	c.live.shown(obj, func() { c.enterPool(obj) })
	c.followPool(obj, true)
}

func (c *Catalogue) losePool(obj v1alpha1.Pool) {
	c.live.gone(obj, func() { c.forgetPool(convert.KeyOf(obj)) })
	c.followPool(obj, false)
}

func (c *Catalogue) followPool(obj v1alpha1.Pool, exists bool) {
	if c.follower.Pool != nil {
		c.follower.Pool(obj, exists)
	}
}

// enterPool stores a pool in the catalog and the ledger.
func (c *Catalogue) enterPool(obj v1alpha1.Pool) {
	pool, errs := c.ReadPool(obj)
	if len(errs) > 0 { // the pool's controller reports it in a condition
		c.forgetPool(convert.KeyOf(obj))
		return
	}
	pool.OpenSince = openSince(obj)
	c.ledger.Describe(pool)
	c.SetPool(pool)
}

func (c *Catalogue) forgetPool(key ipam.PoolKey) {
	c.DropPool(key)
	c.ledger.Forget(key)
}

// ReadPool reads a pool. Its spec is read once for each generation.
func (c *Catalogue) ReadPool(obj v1alpha1.Pool) (ipam.Pool, field.ErrorList) {
	before, _ := c.Pool(convert.KeyOf(obj))
	return convert.PoolAfter(before, obj)
}

// openSince returns the time at which a pool first handed out blocks, from its status. A pool of an
// earlier version of the operator only has the time since which it is ready.
func openSince(obj v1alpha1.Pool) time.Time {
	if first := obj.PoolStatus().FirstReadyTime; first != nil {
		return first.Time
	}
	ready := meta.FindStatusCondition(obj.PoolStatus().Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue {
		return time.Time{}
	}
	return ready.LastTransitionTime.Time
}

func (c *Catalogue) takeClass(obj *v1alpha1.IPClass) {
	c.live.shown(obj, func() { c.enterClass(obj) })
}

func (c *Catalogue) loseClass(obj *v1alpha1.IPClass) {
	c.live.gone(obj, func() { c.DropClass(obj.Name) })
}

func (c *Catalogue) enterClass(obj *v1alpha1.IPClass) {
	class, valid := ReadClass(obj)
	if !valid {
		c.DropClass(obj.Name)
		return
	}
	c.SetClass(class)
}

const (
	// listEvery is the least interval between two live lists of all pools and classes, however many
	// requests miss an object.
	listEvery = time.Second
	// listWithin bounds one such list.
	listWithin = 2 * time.Second
	// watchDelay bounds the time until the watch shows an object that was just created.
	watchDelay = 50 * time.Millisecond
)

// Refresh reads live the objects that a request names, because caches may be behind. All requests
// share a list of pools and classes, which is made at most once in listEvery: within that time
// after the last list there is none, and Refresh only waits for the watch, for as long as it is
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

// readClassAlone stores a class that was read without the others. It leaves unchanged whether the
// class is the default: it is not known yet which class has become the default instead, and the
// watch shows that class first.
func (c *Catalogue) readClassAlone(obj *v1alpha1.IPClass) {
	c.live.read(obj, func() {
		if known, ok := c.Class(obj.Name); ok && known.Default {
			obj = obj.DeepCopy()
			metav1.SetMetaDataAnnotation(&obj.ObjectMeta, v1alpha1.AnnotationDefaultClass, "true")
		}
		c.enterClass(obj)
	})
}

// list lists pools and classes live, once for all requests that ask for it at the same time.
func (c *Catalogue) list(ctx context.Context, live client.Reader) error {
	if c.live.isFresh() {
		ctx, cancel := context.WithTimeout(ctx, watchDelay)
		defer cancel()
		c.awaitChange(ctx)
		return nil
	}
	done := c.live.lists.DoChan("", func() (any, error) {
		if c.live.isFresh() { // another request has just listed them
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

// KnowNamespace ensures that the namespace's project is known: a new namespace may not have been
// seen yet.
func (c *Catalogue) KnowNamespace(ctx context.Context, live client.Reader, name string) error {
	if _, ok := c.Tenant(name); ok {
		return nil
	}
	namespace := namespaces()
	namespace.Name = name
	return refresh(ctx, live, "namespace", namespace, c.takeNamespace)
}

// lostShown is the number of deleted objects that are remembered, so that a late live read does not
// bring them back.
const lostShown = 1024

// liveReads holds the state of the reads past the caches, which may be behind: objects are stored
// one at a time, and never in an older version than the watch has shown.
type liveReads struct {
	clock clock.PassiveClock
	lists singleflight.Group

	listed struct {
		sync.Mutex
		last time.Time
	}

	// mu is held while an object is compared and stored.
	mu sync.Mutex
	// versions holds the newest version stored of each object, and the version of the deletion of
	// the last deleted objects.
	versions map[string]string
	lost     []string
}

func newLiveReads(c clock.PassiveClock) *liveReads {
	return &liveReads{clock: c, versions: map[string]string{}}
}

// shown stores an object as the watch shows it.
func (l *liveReads) shown(obj client.Object, enter func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.versions[keyOf(obj)] = obj.GetResourceVersion()
	enter()
}

// gone records that the watch has shown an object's deletion.
func (l *liveReads) gone(obj client.Object, drop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := keyOf(obj)
	l.versions[key] = obj.GetResourceVersion()
	if l.lost = append(l.lost, key); len(l.lost) > lostShown {
		l.forget(l.lost[0])
		l.lost = l.lost[1:]
	}
	drop()
}

// forget removes the version of a deleted object. If the object has been created again since, the
// comparison starts again with its next event.
func (l *liveReads) forget(key string) { delete(l.versions, key) }

// read stores an object that was read live, if it is newer than the known version.
func (l *liveReads) read(obj client.Object, enter func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, version := keyOf(obj), obj.GetResourceVersion()
	if known, ok := l.versions[key]; ok && !newer(version, known) {
		return
	}
	l.versions[key] = version
	enter()
}

// newer reports whether a version of an object is newer than another; false if that is not known.
func newer(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order > 0
}

func keyOf(obj client.Object) string {
	return fmt.Sprintf("%T %s/%s", obj, obj.GetNamespace(), obj.GetName())
}
