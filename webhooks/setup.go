package webhooks

import (
	"strings"

	"go.opentelemetry.io/otel/trace"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/authorize"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/manifests/schemas"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// Options holds the settings and dependencies that the webhooks get at start-up.
type Options struct {
	// Ledger is the view of all allocations.
	Ledger *ledger.Ledger
	// Catalog holds the pools, classes, namespaces and Clusters.
	Catalog *inventory.Catalog
	// Queue holds the waiting claims and pools.
	Queue *queue.Queue
	// Allocator creates and deletes IPAllocations.
	Allocator *allocator.Allocator
	// Metrics and History count and record refusals.
	Metrics *metrics.Instruments
	History *history.Recorder
	// Tracer starts the spans; nil: no spans.
	Tracer trace.Tracer
	// Live reads without a cache.
	Live client.Reader
	// Rights are asked at admission.
	Rights *authorize.Rights
	// Operator is the user name under which the operator itself writes.
	Operator string
}

// Setup registers all webhooks with the manager's webhook server.
func Setup(mgr manager.Manager, o Options) error {
	definitions, err := schemas.Read()
	if err != nil {
		return err
	}
	scheme, cached := mgr.GetScheme(), mgr.GetCache()
	decoder := admission.NewDecoder(scheme)
	requests := chain{refusals{o.Metrics, o.History}, o.Tracer, o.Operator, newInFlight()}
	serve := func(path string, handler admission.Handler) {
		mgr.GetWebhookServer().Register(path, requests.wrap(handler))
	}

	serve("/mutate-ipam-cadastre-dev-v1alpha1-ipclaim", &claimMutator{
		ledger: o.Ledger, catalog: o.Catalog, queue: o.Queue, allocator: o.Allocator, cached: cached, live: o.Live,
		decoder: decoder, schemas: definitions, rights: o.Rights,
	})
	for _, kind := range []v1alpha1.PoolKind{v1alpha1.PoolKindIPPool, v1alpha1.PoolKindLocalIPPool} {
		serve("/mutate-ipam-cadastre-dev-v1alpha1-"+strings.ToLower(string(kind)), &poolMutator{
			kind: kind, ledger: o.Ledger, catalog: o.Catalog, queue: o.Queue, allocator: o.Allocator, live: o.Live,
			decoder: decoder, schemas: definitions, rights: o.Rights,
		})
	}
	serve("/mutate-ipam-cadastre-dev-v1alpha1-ipclass", &classMutator{catalog: o.Catalog, live: o.Live, decoder: decoder, schemas: definitions})
	serve("/mutate-ipam-cluster-x-k8s-io-v1beta2-ipaddressclaim", &addressClaimMutator{catalog: o.Catalog, live: o.Live, rights: o.Rights})
	serve("/mutate-ipam-cluster-x-k8s-io-v1beta2-ipaddress", &addressMutator{catalog: o.Catalog, allocator: o.Allocator, live: o.Live})

	serve("/validate-ipam-cadastre-dev-v1alpha1-ipclaim", admission.WithValidator(scheme, &claimValidator{catalog: o.Catalog, operator: o.Operator}).Handler)
	serve("/validate-ipam-cadastre-dev-v1alpha1-ippool", admission.WithValidator(scheme, &poolValidator[*v1alpha1.IPPool]{ledger: o.Ledger, catalog: o.Catalog, live: o.Live}).Handler)
	serve("/validate-ipam-cadastre-dev-v1alpha1-localippool", admission.WithValidator(scheme, &poolValidator[*v1alpha1.LocalIPPool]{ledger: o.Ledger, catalog: o.Catalog, live: o.Live}).Handler)
	serve("/validate-ipam-cadastre-dev-v1alpha1-ipallocation", admission.WithValidator(scheme, &allocationValidator{operator: o.Operator}).Handler)
	serve("/validate-ipam-cadastre-dev-v1alpha1-ipclass", admission.WithValidator(scheme, &classValidator{queue: o.Queue}).Handler)
	return nil
}
