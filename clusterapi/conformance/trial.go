package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// trial represents the check of one clause: its namespace, its pool, and what it sees there.
type trial struct {
	Target
	client.WithWatch
	namespace string
	// pool is the pool of the claims, and made the objects of the template that the trial has created.
	pool *unstructured.Unstructured
	made []*unstructured.Unstructured
	// markers counts the claims of settle.
	markers int

	// wake has an element if an object of the namespace has changed since the last look.
	wake    chan struct{}
	watches sync.WaitGroup
	// watching is the context of the watches, which last until the cleanup is done.
	watching   context.Context //nolint:containedctx // it ends with the trial, and not with a call
	endWatches context.CancelFunc
	mu         sync.Mutex
	events     []watch.Event
	lost       error
}

// try checks a clause and cleans up.
func (target Target) try(ctx context.Context, c Clause) (notes []string, err error) {
	t := &trial{Target: target, WithWatch: target.Client, wake: make(chan struct{}, 1)}
	if c.definition {
		objects, err := render(target.Pool, variables{Namespace: "none", Name: "none", Index: indexOf(c)})
		if err != nil {
			return nil, err
		}
		t.pool = objects[0]
		return nil, c.check(ctx, t)
	}
	t.watching, t.endWatches = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		notes = t.cleanUp(context.WithoutCancel(ctx))
		t.endWatches()
		t.watches.Wait()
	}()
	if err := t.setUp(ctx, c); err != nil {
		return nil, fmt.Errorf("preparing: %w", err)
	}
	return nil, c.check(ctx, t)
}

// setUp creates the namespace and the pool, and begins to watch.
func (t *trial) setUp(ctx context.Context, c Clause) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "ipam-conformance-" + strings.ToLower(c.ID) + "-"}}
	if err := t.Create(ctx, namespace); err != nil {
		return fmt.Errorf("creating a namespace: %w", err)
	}
	t.namespace = namespace.Name
	objects, err := render(t.Pool, variables{Namespace: t.namespace, Name: "conformance-" + strings.ToLower(c.ID), Index: indexOf(c)})
	if err != nil {
		return err
	}
	t.pool = objects[0]
	for i := range objects {
		if err := t.createOfTemplate(ctx, objects[(i+1)%len(objects)]); err != nil { // the pool is last
			return err
		}
	}
	pools := &unstructured.UnstructuredList{}
	pools.SetGroupVersionKind(t.pool.GroupVersionKind())
	pools.SetKind(t.pool.GetKind() + "List")
	return errors.Join(
		t.watch(t.watching, &ipamv1.IPAddressClaimList{}, client.InNamespace(t.namespace)),
		t.watch(t.watching, &ipamv1.IPAddressList{}, client.InNamespace(t.namespace)),
		t.watch(t.watching, pools, client.InNamespace(t.pool.GetNamespace()), client.MatchingFields{"metadata.name": t.pool.GetName()}),
	)
}

// createOfTemplate creates an object of the template, or uses that which exists.
func (t *trial) createOfTemplate(ctx context.Context, object *unstructured.Unstructured) error {
	mapping, err := t.RESTMapper().RESTMapping(object.GroupVersionKind().GroupKind(), object.GroupVersionKind().Version)
	if err != nil {
		return err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace && object.GetNamespace() == "" {
		object.SetNamespace(t.namespace)
	}
	err = t.Create(ctx, object)
	if apierrors.IsAlreadyExists(err) {
		return t.Get(ctx, client.ObjectKeyFromObject(object), object)
	}
	if err != nil {
		return fmt.Errorf("creating %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	t.made = append(t.made, object)
	return nil
}

// watch keeps the events of a kind until its context ends.
func (t *trial) watch(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	events, err := t.Watch(ctx, list, options...)
	if err != nil {
		return fmt.Errorf("watching %T: %w", list, err)
	}
	t.watches.Go(func() {
		defer events.Stop()
		for event := range events.ResultChan() {
			t.see(func() { t.events = append(t.events, event) })
		}
		if ctx.Err() == nil {
			t.see(func() { t.lost = fmt.Errorf("the API server has ended the watch of %T", list) })
		}
	})
	return nil
}

// see changes what the trial has seen, and wakes it.
func (t *trial) see(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// seen returns the events so far.
func (t *trial) seen() ([]watch.Event, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clip(t.events), t.lost
}

// until blocks until a condition returns no error. It asks again after each change of a claim, of an
// IPAddress or of the pool, and returns the condition's last error when the deadline has passed.
func (t *trial) until(ctx context.Context, condition func(context.Context) error) error {
	waiting, cancel := context.WithTimeout(ctx, t.Deadline)
	defer cancel()
	var last error
	for {
		err := condition(waiting)
		if err == nil {
			return nil
		}
		if waiting.Err() == nil {
			last = err
		}
		if _, lost := t.seen(); lost != nil {
			return errors.Join(last, lost)
		}
		select {
		case <-t.wake:
		case <-waiting.Done():
			return fmt.Errorf("after %s: %w", t.Deadline, errors.Join(last, ctx.Err()))
		}
	}
}
