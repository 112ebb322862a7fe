package certs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
)

// Mode represents the issuer of the certificate.
type Mode string

const (
	// SelfSigned is the mode of an operator that issues and renews the certificate, with its
	// own authority, which it injects into the webhook configurations.
	SelfSigned Mode = "self-signed"
	// FromSecret is the mode of an operator that only reads the Secret: another controller
	// (cert-manager) writes it and injects the bundle.
	FromSecret Mode = "secret"
)

// Options holds the names of the objects that a [Certs] or a [Paths] keeps, and its settings.
type Options struct {
	// Namespace is the operator's namespace, with the Secret and the Service.
	Namespace string
	// SecretName is the Secret with the certificate, or with the path secrets.
	SecretName string
	// MutatingWebhooks and ValidatingWebhook are the configurations that must trust the
	// certificate, and that get the paths. They can be made after the operator has started.
	MutatingWebhooks  []string
	ValidatingWebhook string
	// Tracer makes a span for each pass. Nil means that there are no spans.
	Tracer trace.Tracer
	// NewInformer makes the informers of the watched objects; nil means client-go's.
	NewInformer func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer
	// Clock is the clock; nil means the real clock.
	Clock clock.PassiveClock

	// Mode is the issuer of the certificate; empty means SelfSigned.
	Mode Mode
	// ServiceName is the Service by which the configurations name the webhooks, for the certificate.
	ServiceName string
}

func (o Options) secret() types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.SecretName}
}

// namesConfigurations reports whether all webhook configurations have a name.
func (o Options) namesConfigurations() bool {
	return len(o.MutatingWebhooks) > 0 && !slices.Contains(o.MutatingWebhooks, "") && o.ValidatingWebhook != ""
}

// configurations returns the webhook configurations, without anything but their names.
func (o Options) configurations() []client.Object {
	var all []client.Object
	for _, name := range o.MutatingWebhooks {
		all = append(all, &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return append(all, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: o.ValidatingWebhook}})
}

// keeper holds the objects of one reconciler, and the progress of its passes.
type keeper struct {
	subject string // begins its messages
	options Options
	reader  client.Reader // reads from the API server
	writer  client.Client
	wake    chan event.GenericEvent // starts a pass

	trouble atomic.Pointer[string] // the reason why the last pass did not reach its end
	ready   chan struct{}
	isReady sync.Once
}

func (k *keeper) init(subject string, options Options, reader client.Reader, writer client.Client) {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	k.subject, k.options, k.reader, k.writer = subject, options, reader, writer
	k.wake, k.ready = make(chan event.GenericEvent, 1), make(chan struct{})
}

// name returns the name of the controller.
func (k *keeper) name() string { return strings.ReplaceAll(strings.ToLower(k.subject), " ", "-") }

func (k *keeper) owner() client.FieldOwner { return client.FieldOwner("cadastre-" + k.name()) }

// recheck is the interval between passes when nothing changes. It is short enough for all
// work that is due at a certain time.
const recheck = time.Hour

// unreadyRecheck is the longest interval between passes until one has reached its end, so that
// a replica that starts does not depend on a watch alone to become ready.
const unreadyRecheck = 5 * time.Second

// conflictRecheck is the time that the watch gets to show another replica's write.
const conflictRecheck = time.Second

// errWait ends a pass that can continue only after another process has written an object. The
// watch of that object starts the next pass.
var errWait = errors.New("waiting")

// Ready returns a channel that is closed, for good, when a pass has reached its end.
func (k *keeper) Ready() <-chan struct{} { return k.ready }

// succeeded records that a pass has reached its end.
func (k *keeper) succeeded() {
	k.trouble.Store(nil)
	k.isReady.Do(func() { close(k.ready) })
}

// failed decides on the next pass by the error of this one. A conflict means that another
// replica has written, and that the watch is about to show its write.
func (k *keeper) failed(ctx context.Context, err error, delay time.Duration) (reconcile.Result, error) {
	trouble := err.Error()
	previous := k.trouble.Swap(&trouble)
	if k.check() != nil {
		delay = min(delay, unreadyRecheck)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: min(delay, conflictRecheck)}, nil
	}
	if errors.Is(err, errWait) {
		if previous == nil || *previous != trouble {
			log.FromContext(ctx).Info(k.subject + ": " + trouble)
		}
		return reconcile.Result{RequeueAfter: delay}, nil
	}
	return reconcile.Result{}, err
}

// check returns an error with the reason why no pass has reached its end yet, or nil if one has.
func (k *keeper) check() error {
	select {
	case <-k.ready:
		return nil
	default:
		return errors.New(k.troubleText())
	}
}

func (k *keeper) troubleText() string {
	trouble := "not loaded yet"
	if last := k.trouble.Load(); last != nil {
		trouble = *last
	}
	return strings.ToLower(k.subject) + ": " + trouble
}

// setup adds the controller of the reconciler to a manager that is not started yet. The controller
// runs on every replica. Each object is watched by a cache of its own, because the operator can list
// only a named object and a cache has one selector for a kind. The manager's scheme needs the core and
// the admissionregistration types. A change of a watched object starts a pass, and so does the start: if
// none of the objects exists, nothing changes.
func (k *keeper) setup(mgr ctrl.Manager, reconciler reconcile.Reconciler, passes kubeutil.PassCounter) error {
	backoff := kubeutil.NewBackoff(clock.RealClock{}, k.name(), passes)
	worker, err := controller.New(k.name(), mgr, controller.Options{
		Reconciler:              backoff.Passes(tracing.Passes(k.options.Tracer, k.name(), reconciler)),
		NeedLeaderElection:      new(false),
		MaxConcurrentReconciles: 1,
		RateLimiter:             backoff.Limiter(),
	})
	if err != nil {
		return err
	}
	// There is only one request, because a pass does the same for every request.
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "all"}}}
	})
	errs := []error{worker.Watch(backoff), worker.Watch(source.Channel(k.wake, enqueue))}
	for object, selected := range k.watched() {
		objects, err := cache.New(mgr.GetConfig(), cache.Options{
			HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
			ByObject: map[client.Object]cache.ByObject{object: selected}, NewInformer: k.options.NewInformer,
		})
		if err != nil {
			return err
		}
		errs = append(errs, mgr.Add(everywhere{objects}), worker.Watch(source.Kind(objects, object, enqueue)))
	}
	k.startPass()
	return errors.Join(errs...)
}

// startPass starts a pass, unless one is due already.
func (k *keeper) startPass() {
	select {
	case k.wake <- event.GenericEvent{Object: &corev1.Secret{}}:
	default:
	}
}

// everywhere represents a cache that a manager starts on every replica.
type everywhere struct{ cache.Cache }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }

// watched returns the objects whose changes start a pass, each by its name alone.
func (k *keeper) watched() map[client.Object]cache.ByObject {
	o := k.options
	named := func(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }
	objects := map[client.Object]cache.ByObject{
		&corev1.Secret{}: {Namespaces: map[string]cache.Config{o.Namespace: {FieldSelector: named(o.SecretName)}}},
	}
	if o.Mode != FromSecret {
		for _, configuration := range o.configurations() {
			objects[configuration] = cache.ByObject{Field: named(configuration.GetName())}
		}
	}
	return objects
}

// readSecret returns the Secret, or nil if there is none.
func (k *keeper) readSecret(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := k.reader.Get(ctx, k.options.secret(), secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", k.options.secret(), err)
	}
	return secret, nil
}

// makeSecret makes the Secret without data. All replicas can do so at once; its resource
// version decides which of them fills it, in the pass that its creation starts. makeSecret
// applies the Secret because a right to create by POST cannot be limited to one name.
func (k *keeper) makeSecret(ctx context.Context) error {
	key := k.options.secret()
	if err := k.writer.Apply(ctx, applycorev1.Secret(key.Name, key.Namespace), k.owner()); err != nil {
		return fmt.Errorf("making Secret %s: %w", key, err)
	}
	return fmt.Errorf("%w for Secret %s, which was just made", errWait, key)
}

// writeSecret writes data into the Secret. It fails if the Secret has changed since it was read.
func (k *keeper) writeSecret(ctx context.Context, secret *corev1.Secret, data map[string][]byte) error {
	original := secret.DeepCopy()
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	maps.Copy(secret.Data, data)
	patch := client.MergeFromWithOptions(original, client.MergeFromWithOptimisticLock{})
	if err := k.writer.Patch(ctx, secret, patch, k.owner()); err != nil {
		return fmt.Errorf("writing Secret %s: %w", client.ObjectKeyFromObject(secret), err)
	}
	return nil
}

// readConfigurations returns the webhook configurations that exist, and the names
// of the missing ones.
func (k *keeper) readConfigurations(ctx context.Context) (found []client.Object, missing []string, err error) {
	for _, configuration := range k.options.configurations() {
		name := configuration.GetName()
		err := k.reader.Get(ctx, types.NamespacedName{Name: name}, configuration)
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, name)
		case err != nil:
			return nil, nil, fmt.Errorf("reading %s: %w", name, err)
		default:
			found = append(found, configuration)
		}
	}
	return found, missing, nil
}

// changeConfiguration calls change and writes the changed configuration. It writes nothing if
// change reports no change, and fails if the configuration has changed since it was read.
func (k *keeper) changeConfiguration(ctx context.Context, configuration client.Object, change func() bool) error {
	original, _ := configuration.DeepCopyObject().(client.Object)
	if !change() {
		return nil
	}
	patch := client.StrategicMergeFrom(original, client.MergeFromWithOptimisticLock{})
	err := k.writer.Patch(ctx, configuration, patch, k.owner())
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w for %s, which is gone", errWait, configuration.GetName())
	}
	if err != nil {
		return fmt.Errorf("patching %s: %w", configuration.GetName(), err)
	}
	return nil
}

// checkComplete returns an error if a configuration does not exist yet: it keeps a replica that
// starts from being ready.
func checkComplete(missing []string) error {
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%w for %s", errWait, strings.Join(missing, ", "))
}

// clientConfig holds the name of a webhook, and the way in which the API server calls it.
type clientConfig struct {
	name string
	*admissionv1.WebhookClientConfig
}

// clientConfigs returns the webhooks of a configuration.
func clientConfigs(configuration client.Object) []clientConfig {
	var configs []clientConfig
	switch configuration := configuration.(type) {
	case *admissionv1.MutatingWebhookConfiguration:
		for i := range configuration.Webhooks {
			configs = append(configs, clientConfig{configuration.Webhooks[i].Name, &configuration.Webhooks[i].ClientConfig})
		}
	case *admissionv1.ValidatingWebhookConfiguration:
		for i := range configuration.Webhooks {
			configs = append(configs, clientConfig{configuration.Webhooks[i].Name, &configuration.Webhooks[i].ClientConfig})
		}
	}
	return configs
}
