package operator

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/util/flags"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
)

// reconcileWithin bounds one pass of a controller: the API server gives up a
// request after as long.
const reconcileWithin = time.Minute

// syncWithin bounds the wait of a controller for what it watches. With a hundred
// thousand claims the two minutes of the library can be too short.
const syncWithin = 10 * time.Minute

// endWithin bounds how long a replica goes on once it is to end. The manager then ends in spite
// of a request whose handler does not heed its context, and gives up the lease: earlier than
// terminationGracePeriodSeconds of the manifests, when the kubelet kills it, and later than
// requests have time by them.
const endWithin = 10 * time.Second

// newManager makes the manager, with the webhook server of the guard and informers that
// list records first.
func newManager(cfg *rest.Config, o Options, to api, first *recordsFirst, guard guard) (ctrl.Manager, error) {
	accepts, diagnostics, err := flags.GetManagerOptions(o.Manager)
	if err != nil {
		return nil, err
	}
	server, err := guard.server(o, accepts)
	if err != nil {
		return nil, err
	}
	options := ctrl.Options{
		Logger:         o.Log,
		Scheme:         to.scheme,
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return to.client.RESTMapper(), nil },
		Cache:          cache.Options{DefaultTransform: slimmer(), NewInformer: first.newInformer, SyncPeriod: syncPeriod(o)},
		Metrics:        *diagnostics, HealthProbeBindAddress: o.ProbeAddress,
		WebhookServer: server, GracefulShutdownTimeout: new(endWithin),
		// The priority queue of controller-runtime v0.24 can block for good when it is
		// shut down with work left in it (kubernetes-sigs/controller-runtime#3538).
		// A call of which no answer comes must not hold up its object for good.
		Controller: config.Controller{
			SkipNameValidation: &o.SkipNameValidation, UsePriorityQueue: new(false), ReconciliationTimeout: reconcileWithin,
			CacheSyncTimeout: syncWithin,
		},
	}
	if err := electLeader(&options, cfg, o); err != nil {
		return nil, fmt.Errorf("setting up leader election: %w", err)
	}
	return ctrl.NewManager(cfg, options)
}

// syncPeriod is nil for the library's own.
func syncPeriod(o Options) *time.Duration {
	if o.SyncPeriod == 0 {
		return nil
	}
	return &o.SyncPeriod
}
