// Package controller lists the controllers.
package controller

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/authorize"
	"github.com/cadastre-dev/cadastre/internal/controller/allocationgc"
	"github.com/cadastre-dev/cadastre/internal/controller/clusternetwork"
	"github.com/cadastre-dev/cadastre/internal/controller/ipaddressclaim"
	"github.com/cadastre-dev/cadastre/internal/controller/ipclaim"
	"github.com/cadastre-dev/cadastre/internal/controller/ipclass"
	"github.com/cadastre-dev/cadastre/internal/controller/ippool"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// countInterval is the shortest time between two writes of the counts of a pool or a class.
const countInterval = time.Second

// Options holds the settings and dependencies that the controllers get at start-up.
type Options struct {
	Ledger    *ledger.Ledger
	Catalog   *inventory.Catalog
	Queue     *queue.Queue
	Allocator *allocator.Allocator
	Metrics   *metrics.Instruments
	History   *history.Recorder
	Tracer    trace.Tracer

	// Live reads without a cache.
	Live        client.Reader
	Asker       *authorize.Asker
	OrphanGrace time.Duration
	Workers     int
	// Namespace is the namespace of the operator, which has the records of pools.
	Namespace string
	// WatchNamespace is the only namespace whose claims are reconciled; empty: all.
	WatchNamespace string
	// WatchFilter is the required value of the label cluster.x-k8s.io/watch-filter of
	// IPAddressClaims; empty: any, or none.
	WatchFilter string
	// Targets has the references of IPAddressClaims that are served.
	Targets convert.Targets
	// IsProviderRunning reports whether the in-cluster provider serves its pools; nil: it does not.
	IsProviderRunning func() bool
	// AddressClaims is notified of all IPAddressClaims that the cache has.
	AddressClaims cache.ResourceEventHandler
}

// Setup registers all controllers: the controllers of every replica, and the controllers of the
// leader.
func Setup(mgr manager.Manager, o Options) error {
	claims := kubeutil.NamespacesOf(o.WatchNamespace)
	notifyConflicts := manager.RunnableFunc(func(ctx context.Context) error {
		o.Ledger.NotifyConflicts(ctx)
		return nil
	})
	if err := mgr.Add(notifyConflicts); err != nil {
		return err
	}
	recorder := kubeutil.NewEvents(mgr.GetEventRecorder("cadastre"), mgr.GetScheme(), clock.RealClock{}, mgr.GetLogger())
	orphans := &allocationgc.Controller{
		Ledger: o.Ledger, Catalog: o.Catalog, Allocator: o.Allocator, Metrics: o.Metrics, History: o.History, Tracer: o.Tracer,
		Client: mgr.GetClient(), Live: o.Live, Clock: clock.RealClock{}, Events: recorder,
		Grace: o.OrphanGrace, Workers: max(o.Workers, allocator.MaxConcurrentAttempts), Within: o.recordNamespaces(), InCluster: o.Targets.InCluster,
	}
	return setup(mgr,
		&ipclass.Controller{
			Ledger: o.Ledger, Catalog: o.Catalog, Queue: o.Queue, Metrics: o.Metrics, Tracer: o.Tracer,
			Client: mgr.GetClient(), Workers: o.Workers, Throttle: kubeutil.NewThrottle(countInterval, clock.RealClock{}),
		},
		&ippool.Controller{
			Ledger: o.Ledger, Catalog: o.Catalog, Queue: o.Queue, Allocator: o.Allocator, Metrics: o.Metrics, Tracer: o.Tracer,
			Client: mgr.GetClient(), Asker: o.Asker, Workers: o.Workers, Events: recorder,
			Throttle: kubeutil.NewThrottle(countInterval, clock.RealClock{}), InCluster: o.Targets.InCluster, IsProviderRunning: o.IsProviderRunning,
		},
		&ipclaim.Controller{
			Ledger: o.Ledger, Catalog: o.Catalog, Queue: o.Queue, Allocator: o.Allocator, Metrics: o.Metrics, Tracer: o.Tracer,
			Client: mgr.GetClient(), Live: o.Live, Asker: o.Asker, Workers: o.Workers, Within: claims, Events: recorder,
		},
		orphans,
		&ipaddressclaim.Replica{
			Ledger: o.Ledger, Catalog: o.Catalog, Queue: o.Queue, Tracer: o.Tracer,
			Client: mgr.GetClient(), Within: claims, WatchFilter: o.WatchFilter, Targets: o.Targets, Handler: o.AddressClaims,
			StartLeader: func() error {
				return setup(mgr, &ipaddressclaim.Controller{
					Ledger: o.Ledger, Catalog: o.Catalog, Queue: o.Queue, Allocator: o.Allocator, Metrics: o.Metrics, Tracer: o.Tracer,
					Client: mgr.GetClient(), Live: o.Live, Asker: o.Asker, Orphans: orphans, Workers: o.Workers,
					Within: claims, WatchFilter: o.WatchFilter, Targets: o.Targets, IsProviderRunning: o.IsProviderRunning,
					Clock: clock.RealClock{}, Events: recorder,
				}, &clusternetwork.Controller{
					Metrics: o.Metrics, Tracer: o.Tracer, Client: mgr.GetClient(), Live: o.Live, Clock: clock.RealClock{},
					Grace: o.OrphanGrace, Workers: o.Workers, Within: claims, Events: recorder,
				})
			},
		},
	)
}

// recordNamespaces returns the namespaces whose records are collected: of the claims, and of the pools.
func (o *Options) recordNamespaces() kubeutil.Namespaces {
	if o.WatchNamespace == "" {
		return nil
	}
	return kubeutil.NamespacesOf(o.WatchNamespace, o.Namespace)
}

func setup(mgr manager.Manager, controllers ...interface{ SetupWithManager(manager.Manager) error }) error {
	for _, c := range controllers {
		if err := c.SetupWithManager(mgr); err != nil {
			return err
		}
	}
	return nil
}
