// Package webhooks answers the API server's admission requests, with one file for each kind. Each
// answer is a thin layer around the call that the reconciler makes too.
//
// Mutating webhooks run before schema and CEL validation, quota and the validating webhooks of
// other parties, any of which can still refuse an object whose block was recorded here. So they
// check everything first and record last; an object that is refused nevertheless leaves an orphan,
// which is collected.
//
// A webhook never makes an object impossible to edit or to delete: on update it judges only the
// changes, and an object that is being deleted always passes.
//
// +kubebuilder:webhookconfiguration:mutating=true,name=zz-cadastre-mutating-webhook-configuration
// +kubebuilder:webhookconfiguration:mutating=false,name=cadastre-validating-webhook-configuration
package webhooks

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/authorize"
	"github.com/cadastre-dev/cadastre/internal/certs"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/manifests"
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
	// Client writes the claims of Clusters.
	Client client.Client
	// Rights are asked at admission.
	Rights *authorize.Rights
	// InCluster has the pools of the in-cluster provider's kinds judged, too.
	InCluster bool
	// Operator is the user name under which the operator itself writes.
	Operator string
}

// Setup registers all webhooks with the manager's webhook server.
func Setup(mgr manager.Manager, o Options) {
	scheme := mgr.GetScheme()
	shared := &services{o, mgr.GetCache(), admission.NewDecoder(scheme), manifests.NewSchemas()}
	requests := chain{refusals{o.Metrics, o.History}, o.Tracer, o.Operator, newInFlight()}
	// A review of a Cluster waits for those of its claims, and must not keep them from being read.
	clusters := requests
	clusters.inFlight = newInFlight()
	for kind, handler := range shared.mutators() {
		hook := requests.wrap(handler)
		if kind == "Cluster" {
			hook = clusters.wrapBounded(handler)
		}
		mgr.GetWebhookServer().Register(pathOf("mutate", kind), hook)
	}
	for kind, handler := range shared.validators(scheme) {
		hook := requests.wrap(handler)
		if ipam.PoolKind(kind).IsInCluster() && !o.InCluster { // another provider's, which bounds them itself
			hook = &admission.Webhook{Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { return admission.Allowed("") })}
		}
		mgr.GetWebhookServer().Register(pathOf("validate", kind), hook)
	}
}

// pathOf returns the path of a webhook of a kind, as the manifests state it.
func pathOf(verb, kind string) string {
	group := "ipam-cadastre-dev-v1alpha1"
	switch kind {
	case "InClusterIPPool", "GlobalInClusterIPPool":
		group = "ipam-cluster-x-k8s-io-v1alpha2"
	case "IPAddressClaim", "IPAddress":
		group = "ipam-cluster-x-k8s-io-v1beta2"
	case "Cluster":
		group = "cluster-x-k8s-io-v1beta2"
	}
	return "/" + verb + "-" + group + "-" + strings.ToLower(kind)
}

// Paths returns the paths of all webhooks, without the secret, as the manifests state them. They do not
// depend on the operator's account.
func Paths() certs.PlainPaths {
	paths := func(configurations ...string) map[string]string {
		byName := map[string]string{}
		for _, configuration := range configurations {
			for name, webhook := range manifests.Webhooks(configuration, manifests.Account{}) {
				byName[name] = *webhook.ClientConfig.Service.Path
			}
		}
		return byName
	}
	return certs.PlainPaths{
		Mutating:   paths(manifests.MutatingWebhooks, manifests.ClusterWebhooks),
		Validating: paths(manifests.ValidatingWebhooks),
	}
}

// services holds what the handlers share.
type services struct {
	Options
	cached  client.Reader
	decoder admission.Decoder
	schemas manifests.Schemas
}

// mutators returns the handlers of the mutating webhooks, by kind.
func (s *services) mutators() map[string]admission.Handler {
	return map[string]admission.Handler{
		"IPClaim":        &claimMutator{s},
		"IPPool":         &poolMutator{s, v1alpha1.PoolKindIPPool},
		"LocalIPPool":    &poolMutator{s, v1alpha1.PoolKindLocalIPPool},
		"IPClass":        &classMutator{s},
		"IPAddressClaim": &addressClaimMutator{s},
		"IPAddress":      &addressMutator{s},
		"Cluster":        &clusterMutator{s, &claimMutator{s}},
	}
}

// validators returns the handlers of the validating webhooks, by kind.
func (s *services) validators(scheme *runtime.Scheme) map[string]admission.Handler {
	return map[string]admission.Handler{
		"IPClaim":      validator[*v1alpha1.IPClaim]{update: s.updateClaim}.handler(scheme),
		"IPPool":       poolValidator[*v1alpha1.IPPool](s).handler(scheme),
		"LocalIPPool":  poolValidator[*v1alpha1.LocalIPPool](s).handler(scheme),
		"IPAllocation": validator[*v1alpha1.IPAllocation]{remove: s.deleteAllocation}.handler(scheme),
		"IPClass":      validator[*v1alpha1.IPClass]{remove: s.deleteClass}.handler(scheme),

		"InClusterIPPool":       inClusterValidator[*incluster.InClusterIPPool](s).handler(scheme),
		"GlobalInClusterIPPool": inClusterValidator[*incluster.GlobalInClusterIPPool](s).handler(scheme),
	}
}

// validator implements admission.Validator for a kind. It lets an object pass that is being deleted,
// and a request for which it has no function. A create for which a block is recorded is judged by the
// mutating webhook, which must decide everything before it records the block.
type validator[T client.Object] struct {
	create func(obj T) error
	update func(ctx context.Context, req admission.Request, before, after T) (admission.Warnings, error)
	remove func(ctx context.Context, req admission.Request, obj T) error
}

func (v validator[T]) handler(scheme *runtime.Scheme) admission.Handler {
	return admission.WithValidator(scheme, v).Handler
}

// ValidateCreate implements admission.Validator.
func (v validator[T]) ValidateCreate(_ context.Context, obj T) (admission.Warnings, error) {
	if v.create == nil {
		return nil, nil
	}
	return nil, v.create(obj)
}

// ValidateUpdate implements admission.Validator.
func (v validator[T]) ValidateUpdate(ctx context.Context, before, after T) (admission.Warnings, error) {
	req, err := admission.RequestFromContext(ctx)
	if err != nil || v.update == nil || !after.GetDeletionTimestamp().IsZero() {
		return nil, err
	}
	return v.update(ctx, req, before, after)
}

// ValidateDelete implements admission.Validator.
func (v validator[T]) ValidateDelete(ctx context.Context, obj T) (admission.Warnings, error) {
	req, err := admission.RequestFromContext(ctx)
	if err != nil || v.remove == nil || !obj.GetDeletionTimestamp().IsZero() {
		return nil, err
	}
	return nil, v.remove(ctx, req, obj)
}
