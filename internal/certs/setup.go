package certs

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Setup adds what keeps the certificate to a manager that is not started yet. It
// runs on every replica. It watches by a cache of its own, so the manager's may
// be configured in any way; the manager's scheme needs the core and the
// admissionregistration types.
func Setup(mgr ctrl.Manager, options Options) (*Certs, error) {
	c, err := newCerts(options, mgr.GetAPIReader(), mgr.GetClient())
	if err != nil {
		return nil, err
	}
	if err := c.start(mgr); err != nil {
		return nil, fmt.Errorf("webhook certificate: %w", err)
	}
	return c, nil
}

func (c *Certs) start(mgr ctrl.Manager) error {
	watched := c.watched()
	objects, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(),
		Scheme:     mgr.GetScheme(),
		Mapper:     mgr.GetRESTMapper(),
		ByObject:   watched,
	})
	if err != nil {
		return err
	}
	if err := mgr.Add(everywhere{objects}); err != nil {
		return err
	}
	everyReplica := false
	worker, err := controller.New("webhook-certificate", mgr, controller.Options{
		Reconciler:              c,
		NeedLeaderElection:      &everyReplica,
		MaxConcurrentReconciles: 1,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
			50*time.Millisecond, time.Minute),
	})
	if err != nil {
		return err
	}
	return c.watch(worker, objects, watched)
}

// watched are the objects whose changes start a pass, each by its name alone.
func (c *Certs) watched() map[client.Object]cache.ByObject {
	named := func(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }
	objects := map[client.Object]cache.ByObject{
		&corev1.Secret{}: {
			Namespaces: map[string]cache.Config{c.options.Namespace: {FieldSelector: named(c.options.SecretName)}},
		},
	}
	if c.options.Mode == SelfSigned {
		objects[&admissionv1.MutatingWebhookConfiguration{}] = cache.ByObject{Field: named(c.options.MutatingWebhook)}
		objects[&admissionv1.ValidatingWebhookConfiguration{}] = cache.ByObject{Field: named(c.options.ValidatingWebhook)}
	}
	return objects
}

// watch starts a pass on any change, and one at the start: where none of the
// objects exists, nothing changes.
func (c *Certs) watch(worker controller.Controller, objects cache.Cache, watched map[client.Object]cache.ByObject) error {
	pass := reconcile.Request{NamespacedName: c.options.secret()}
	first := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(pass)
		return nil
	})
	if err := worker.Watch(first); err != nil {
		return err
	}
	onChange := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{pass}
	})
	for object := range watched {
		if err := worker.Watch(source.Kind(objects, object, onChange)); err != nil {
			return err
		}
	}
	return nil
}

// everywhere is a cache that a manager starts on every replica.
type everywhere struct{ cache.Cache }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }
