package certs

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
)

// SetupWithManager adds the controller of the certificate to a manager that is not started yet.
// The controller runs on every replica. It watches by its own cache, so the manager's cache can
// have any configuration; the manager's scheme needs the core and the admissionregistration
// types. It counts its passes with the counter, if that is not nil.
func (c *Certs) SetupWithManager(mgr ctrl.Manager, passes kubeutil.PassCounter) error {
	const name = "webhook-certificate"
	err := runOnEveryReplica(mgr, worker{name, tracing.Passes(c.options.Tracer, name, c), kubeutil.NewBackoff(clock.RealClock{}, name, passes), c.watched(), nil})
	if err != nil {
		return fmt.Errorf("webhook certificate: %w", err)
	}
	return nil
}

// worker holds a reconciler and the sources that start its passes.
type worker struct {
	name       string
	reconciler reconcile.Reconciler
	backoff    *kubeutil.Backoff
	watched    map[client.Object]cache.ByObject
	wake       <-chan event.GenericEvent
}

// runOnEveryReplica adds a reconciler to a manager, and a cache of the watched objects. A change
// of such an object starts a pass, and so does an event over wake.
func runOnEveryReplica(mgr ctrl.Manager, w worker) error {
	objects, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(),
		Scheme:     mgr.GetScheme(),
		Mapper:     mgr.GetRESTMapper(),
		ByObject:   w.watched,
	})
	if err != nil {
		return err
	}
	if err := mgr.Add(everywhere{objects}); err != nil {
		return err
	}
	everyReplica := false
	workerController, err := controller.New(w.name, mgr, controller.Options{
		Reconciler:              w.backoff.Passes(w.reconciler),
		NeedLeaderElection:      &everyReplica,
		MaxConcurrentReconciles: 1,
		RateLimiter:             w.backoff.Limiter(),
	})
	if err != nil {
		return err
	}
	if err := workerController.Watch(w.backoff); err != nil {
		return err
	}
	if w.wake != nil {
		if err := workerController.Watch(source.Channel(w.wake, onChange())); err != nil {
			return err
		}
	}
	return watch(workerController, objects, w.watched)
}

// watched returns the objects whose changes start a pass, each by its name alone.
func (c *Certs) watched() map[client.Object]cache.ByObject {
	objects := map[client.Object]cache.ByObject{}
	watchSecret(objects, c.options.secret())
	if c.options.Mode == SelfSigned {
		watchConfigurations(objects, c.options.MutatingWebhook, c.options.ValidatingWebhook)
	}
	return objects
}

func watchSecret(objects map[client.Object]cache.ByObject, secret types.NamespacedName) {
	objects[&corev1.Secret{}] = cache.ByObject{
		Namespaces: map[string]cache.Config{secret.Namespace: {FieldSelector: nameSelector(secret.Name)}},
	}
}

func watchConfigurations(objects map[client.Object]cache.ByObject, mutating, validating string) {
	objects[&admissionv1.MutatingWebhookConfiguration{}] = cache.ByObject{Field: nameSelector(mutating)}
	objects[&admissionv1.ValidatingWebhookConfiguration{}] = cache.ByObject{Field: nameSelector(validating)}
}

func nameSelector(name string) fields.Selector {
	return fields.OneTermEqualSelector("metadata.name", name)
}

// onlyRequest returns the request that starts a pass. There is only one, because a pass does the
// same for every request.
func onlyRequest() reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: "all"}}
}

func onChange() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{onlyRequest()}
	})
}

// watch starts a pass on any change, and one at the start: if none of the
// objects exists, nothing changes.
func watch(worker controller.Controller, objects cache.Cache, watched map[client.Object]cache.ByObject) error {
	first := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(onlyRequest())
		return nil
	})
	if err := worker.Watch(first); err != nil {
		return err
	}
	for object := range watched {
		if err := worker.Watch(source.Kind(objects, object, onChange())); err != nil {
			return err
		}
	}
	return nil
}

// everywhere represents a cache that a manager starts on every replica.
type everywhere struct{ cache.Cache }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }
