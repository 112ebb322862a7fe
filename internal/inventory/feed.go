package inventory

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// Feed keeps the catalogue, and the ledger's knowledge of pools, up to date from the
// informers of a cache. To be called once, before the cache is started. What it returns
// report whether the first list of each kind is complete.
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

// Enter takes over a pool, a class, or the metadata of a namespace, which was listed: for a
// process that asks questions of a catalogue, and does not watch.
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

// namespaces are watched for their labels alone.
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

// takePool takes over a pool as the watch shows it.
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

// enterPool enters a pool into the catalogue and the ledger.
func (c *Catalogue) enterPool(obj v1alpha1.Pool) {
	pool, errs := c.ReadPool(obj)
	if len(errs) > 0 { // the pool's controller says so in its condition
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

// openSince is when a pool first handed out blocks, as its status says. That of a pool of an
// earlier version of the operator says only since when it is ready.
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
