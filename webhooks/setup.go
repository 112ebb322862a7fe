package webhooks

import (
	"errors"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/manifests/schemas"
	"github.com/cadastre-dev/cadastre/internal/requester"
)

// Options are what the webhooks are given at start-up.
type Options struct {
	allocator.Parts
	// Live reads without a cache.
	Live client.Reader
	// Rights are asked at admission, and Ring seals who asked where there is none.
	Rights *requester.Rights
	Ring   *requester.Ring
	// Operator is the user name under which the operator itself writes.
	Operator string
}

// Setup registers all webhooks with the manager's webhook server.
func Setup(mgr manager.Manager, o Options) error {
	mgr = observedManager{mgr, observer{refusals{o.Metrics, o.History}, o.Tracer, o.Operator, newInFlight()}}
	decoder := admission.NewDecoder(mgr.GetScheme())
	definitions, err := schemas.Read()
	if err != nil {
		return err
	}
	cached := mgr.GetCache()
	server := mgr.GetWebhookServer()
	server.Register("/mutate-ipam-cadastre-dev-v1alpha1-ipclaim", &admission.Webhook{
		Handler: &claimMutator{Parts: o.Parts, cached: cached, live: o.Live, decoder: decoder, schemas: definitions, rights: o.Rights, ring: o.Ring},
	})
	for _, kind := range []v1alpha1.PoolKind{v1alpha1.PoolKindIPPool, v1alpha1.PoolKindLocalIPPool} {
		server.Register("/mutate-ipam-cadastre-dev-v1alpha1-"+strings.ToLower(string(kind)), &admission.Webhook{
			Handler: &poolMutator{kind: kind, Parts: o.Parts, live: o.Live, decoder: decoder, schemas: definitions, rights: o.Rights, ring: o.Ring},
		})
	}
	server.Register("/mutate-ipam-cadastre-dev-v1alpha1-ipclass", &admission.Webhook{
		Handler: &classMutator{Parts: o.Parts, live: o.Live, decoder: decoder, schemas: definitions},
	})
	server.Register("/mutate-ipam-cluster-x-k8s-io-v1beta2-ipaddressclaim", &admission.Webhook{
		Handler: &addressClaimMutator{Parts: o.Parts, live: o.Live, rights: o.Rights, ring: o.Ring},
	})
	server.Register("/mutate-ipam-cluster-x-k8s-io-v1beta2-ipaddress", &admission.Webhook{
		Handler: &addressMutator{Parts: o.Parts, live: o.Live},
	})
	return errors.Join(
		builder.WebhookManagedBy(mgr, &v1alpha1.IPClaim{}).WithValidator(&claimValidator{Parts: o.Parts, operator: o.Operator}).Complete(),
		builder.WebhookManagedBy(mgr, &v1alpha1.IPPool{}).WithValidator(&poolValidator[*v1alpha1.IPPool]{Parts: o.Parts, live: o.Live}).Complete(),
		builder.WebhookManagedBy(mgr, &v1alpha1.LocalIPPool{}).WithValidator(&poolValidator[*v1alpha1.LocalIPPool]{Parts: o.Parts, live: o.Live}).Complete(),
		builder.WebhookManagedBy(mgr, &v1alpha1.IPAllocation{}).WithValidator(&allocationValidator{operator: o.Operator}).Complete(),
		builder.WebhookManagedBy(mgr, &v1alpha1.IPClass{}).WithValidator(&classValidator{Parts: o.Parts}).Complete(),
	)
}
