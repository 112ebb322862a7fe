package inventory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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

// Feed keeps the catalog and the ledger's pools up to date from the informers of a cache. It must
// be called once, before the cache is started. The returned functions report whether the first list
// of each kind is complete.
func (c *Catalog) Feed(ctx context.Context, informerCache ctrlcache.Cache) (synced []func() bool, err error) {
	type feed struct {
		obj     client.Object
		handler cache.ResourceEventHandler
	}
	feeds := []feed{
		{kubeutil.NewNamespace(), kubeutil.Handler(c.onNamespaceUpdate, c.onNamespaceDelete)},
		{&v1alpha1.IPClass{}, kubeutil.Handler(c.onClassUpdate, c.onClassDelete)},
	}
	for _, pool := range convert.PoolTypes(c.inCluster) {
		feeds = append(feeds, feed{pool, kubeutil.Handler(c.onPoolUpdate, c.onPoolDelete)})
	}
	for _, f := range feeds {
		informer, err := informerCache.GetInformer(ctx, f.obj)
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

// RecordObject stores a listed pool, class, or metadata of a namespace, in a process that does not
// watch.
func (c *Catalog) RecordObject(obj client.Object) {
	switch obj := obj.(type) {
	case v1alpha1.Pool:
		c.onPoolUpdate(obj)
	case *v1alpha1.IPClass:
		c.onClassUpdate(obj)
	case *metav1.PartialObjectMetadata:
		c.onNamespaceUpdate(obj)
	}
}

func (c *Catalog) onNamespaceUpdate(obj *metav1.PartialObjectMetadata) {
	_, ok := c.Tenant(obj.Name)
	c.SetProject(obj.Name, obj.Labels[v1alpha1.LabelProject])
	if !ok {
		c.follower.Namespace(obj.Name)
	}
}

func (c *Catalog) onNamespaceDelete(obj *metav1.PartialObjectMetadata) {
	c.DropNamespace(obj.Name)
	c.follower.Namespace(obj.Name)
}

// onPoolUpdate stores a pool as the watch shows it.
func (c *Catalog) onPoolUpdate(obj v1alpha1.Pool) {
	c.live.applyEvent(obj, func() { c.recordPool(obj) })
	c.follower.Pool(obj, true)
}

func (c *Catalog) onPoolDelete(obj v1alpha1.Pool) {
	c.live.applyDeletion(obj, func() { c.forgetPool(convert.KeyOf(obj)) })
	c.follower.Pool(obj, false)
}

// recordPool stores a pool in the catalog and the ledger.
func (c *Catalog) recordPool(obj v1alpha1.Pool) {
	pool, errs := c.ReadPool(obj)
	if len(errs) > 0 { // the pool's controller reports it in a condition
		c.forgetPool(convert.KeyOf(obj))
		return
	}
	pool.OpenSince = openSince(obj)
	c.ledger.Describe(pool)
	c.SetPool(pool)
}

func (c *Catalog) forgetPool(key ipam.PoolKey) {
	c.DropPool(key)
	c.ledger.Forget(key)
}

// ReadPool reads a pool. Its spec is read once for each generation.
func (c *Catalog) ReadPool(obj v1alpha1.Pool) (ipam.Pool, field.ErrorList) {
	previous, _ := c.Pool(convert.KeyOf(obj))
	return convert.PoolAfter(previous, obj)
}

// openSince returns the time at which a pool first handed out blocks. Earlier versions of the
// operator wrote only the time since which it is ready.
func openSince(obj v1alpha1.Pool) time.Time {
	if firstReady := obj.PoolStatus().FirstReadyTime; firstReady != nil {
		return firstReady.Time
	}
	ready := meta.FindStatusCondition(obj.PoolStatus().Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue {
		return time.Time{}
	}
	return ready.LastTransitionTime.Time
}

func (c *Catalog) onClassUpdate(obj *v1alpha1.IPClass) {
	c.live.applyEvent(obj, func() { c.recordClass(obj) })
}

func (c *Catalog) onClassDelete(obj *v1alpha1.IPClass) {
	c.live.applyDeletion(obj, func() { c.DropClass(obj.Name) })
}

func (c *Catalog) recordClass(obj *v1alpha1.IPClass) {
	class, ok := ReadClass(obj)
	if !ok {
		c.DropClass(obj.Name)
		return
	}
	c.SetClass(class)
}

const (
	// listInterval is the least interval between two live lists, however many requests miss an
	// object.
	listInterval = time.Second
	// listTimeout bounds one such list.
	listTimeout = 2 * time.Second
	// watchDelay bounds the time until the watch shows an object that was just created.
	watchDelay = 50 * time.Millisecond
	// recordDelay bounds the time until the watch of records shows the own record of a pool that has
	// been ready.
	recordDelay = time.Second
)

// Refresh reads live the objects that a request names, because caches may be behind. All requests
// share a list of pools and classes, at most once in listInterval: within that time Refresh only
// waits for the watch, for as long as it is usually behind.
func (c *Catalog) Refresh(ctx context.Context, live client.Reader, req ipam.Request) error {
	switch {
	case req.Pool != (ipam.PoolKey{}):
		pool := convert.NewPool(req.Pool.Kind)
		pool.SetNamespace(req.Pool.Namespace)
		pool.SetName(req.Pool.Name)
		return refreshObject(ctx, live, string(req.Pool.Kind), pool, c.recordLivePool)
	case req.Class != "":
		if err := refreshObject(ctx, live, "IPClass", &v1alpha1.IPClass{ObjectMeta: metav1.ObjectMeta{Name: req.Class}}, c.recordLiveClassAlone); err != nil {
			return err
		}
		class, _ := c.Class(req.Class)
		if backing, _ := c.PoolsOf(req.Namespace(), class.Class); len(backing) > 0 && !slices.ContainsFunc(backing, hasNeverBeenReady) {
			return nil
		}
	}
	return c.listOrAwait(ctx, live)
}

// AwaitRecords waits, for at most recordDelay, until the ledger shows the own record of a pool that
// has been ready: the record is stored, but the watch of records is behind that of pools. The pools
// are those that are not ready by the error of a request. It reports whether one of them can hand
// out blocks now.
func (c *Catalog) AwaitRecords(ctx context.Context, err error) (isOpen bool) {
	var pools []ipam.Pool
	var keys []ipam.PoolKey
	for _, result := range ipam.PoolsOf(err) {
		if pool, ok := c.Pool(result.Pool); ok && result.Verdict() == ipam.NotReady && !hasNeverBeenReady(pool) {
			pools, keys = append(pools, pool), append(keys, pool.Key)
		}
	}
	hasNoRecord := func(pool ipam.Pool) bool { return c.PoolState(pool).Record.UID == "" }
	ctx, cancel := context.WithTimeout(ctx, recordDelay)
	defer cancel()
	c.ledger.Await(ctx, keys, func() bool {
		isOpen = slices.ContainsFunc(pools, c.ledger.IsOpen)
		return isOpen || !slices.ContainsFunc(pools, hasNoRecord)
	})
	return isOpen
}

// hasNeverBeenReady reports whether a pool has never handed out blocks, as far as is known.
func hasNeverBeenReady(pool ipam.Pool) bool { return pool.OpenSince.IsZero() }

func (c *Catalog) recordLivePool(obj v1alpha1.Pool) {
	c.live.applyRead(obj, func() { c.recordPool(obj) })
}

func (c *Catalog) recordLiveClass(obj *v1alpha1.IPClass) {
	c.live.applyRead(obj, func() { c.recordClass(obj) })
}

// recordLiveClassAlone stores a class that was read without the others. It stays the default: the
// watch shows first which class has become the default instead.
func (c *Catalog) recordLiveClassAlone(obj *v1alpha1.IPClass) {
	c.live.applyRead(obj, func() {
		if class, ok := c.Class(obj.Name); ok && class.Default {
			obj = obj.DeepCopy()
			metav1.SetMetaDataAnnotation(&obj.ObjectMeta, v1alpha1.AnnotationDefaultClass, "true")
		}
		c.recordClass(obj)
	})
}

// listOrAwait lists pools and classes live, once for all requests that ask for it at the same time.
func (c *Catalog) listOrAwait(ctx context.Context, live client.Reader) error {
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
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listTimeout)
		defer cancel()
		err := c.listAll(ctx, live)
		if err == nil {
			c.live.lastList.Store(new(c.live.clock.Now()))
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
	last := l.lastList.Load()
	return last != nil && l.clock.Since(*last) < listInterval
}

func (c *Catalog) listAll(ctx context.Context, live client.Reader) error {
	classes, pools, locals := &v1alpha1.IPClassList{}, &v1alpha1.IPPoolList{}, &v1alpha1.LocalIPPoolList{}
	for _, list := range []client.ObjectList{classes, pools, locals} {
		if err := live.List(ctx, list); err != nil {
			return fmt.Errorf("listing classes and pools: %w", err)
		}
	}
	defaultsFirst(classes.Items)
	for i := range classes.Items {
		c.recordLiveClass(&classes.Items[i])
	}
	for i := range pools.Items {
		c.recordLivePool(&pools.Items[i])
	}
	for i := range locals.Items {
		c.recordLivePool(&locals.Items[i])
	}
	return nil
}

func refreshObject[T client.Object](ctx context.Context, live client.Reader, kind string, obj T, record func(T)) error {
	key := client.ObjectKeyFromObject(obj)
	err := live.Get(ctx, key, obj)
	switch {
	case kubeutil.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading %s %s: %w", kind, key.Name, err)
	}
	record(obj)
	return nil
}

// maxDeletedKeys is the number of remembered deletions, which a late live read does not undo.
const maxDeletedKeys = 1024

// liveReads holds the state of reads past the caches: an object is never stored in an older version
// than the watch has shown.
type liveReads struct {
	clock clock.PassiveClock
	lists singleflight.Group
	// lastList is the time of the last list; nil before the first.
	lastList atomic.Pointer[time.Time]

	// mu is held while an object is compared and stored.
	mu sync.Mutex
	// versions holds the newest stored version of each object, and those of the last deletions.
	versions    map[string]string
	deletedKeys []string
}

func newLiveReads(c clock.PassiveClock) *liveReads {
	return &liveReads{clock: c, versions: map[string]string{}}
}

// applyEvent stores an object as the watch shows it.
func (l *liveReads) applyEvent(obj client.Object, record func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.versions[keyOf(obj)] = obj.GetResourceVersion()
	record()
}

// applyDeletion records that the watch has shown an object's deletion.
func (l *liveReads) applyDeletion(obj client.Object, remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := keyOf(obj)
	l.versions[key] = obj.GetResourceVersion()
	if l.deletedKeys = append(l.deletedKeys, key); len(l.deletedKeys) > maxDeletedKeys {
		delete(l.versions, l.deletedKeys[0]) // if it was created again, the comparison starts with its next event
		l.deletedKeys = l.deletedKeys[1:]
	}
	remove()
}

// applyRead stores an object that was read live, if it is newer than the known version.
func (l *liveReads) applyRead(obj client.Object, record func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, version := keyOf(obj), obj.GetResourceVersion()
	if seenVersion, ok := l.versions[key]; ok && !isNewer(version, seenVersion) {
		return
	}
	l.versions[key] = version
	record()
}

// isNewer reports whether a version of an object is newer than another; false if that is not known.
func isNewer(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order > 0
}

func keyOf(obj client.Object) string {
	return fmt.Sprintf("%T %s/%s", obj, obj.GetNamespace(), obj.GetName())
}
