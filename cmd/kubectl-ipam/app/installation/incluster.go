package installation

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// inClusterProvider checks whether Cluster API's in-cluster provider runs beside the operator that serves
// its pools. If Cadastre serves none, there is no check.
//
// Whether the provider renews its lease is taken from the conditions of the pools: the operator follows
// the lease by its own clock, and a lease that is read once shows only a time of another clock.
func (d *Doctor) inClusterProvider(ctx context.Context) []Check {
	const name = "in-cluster-provider"
	served, running := 0, 0
	for _, listing := range register.InClusterPools(func(pool v1alpha1.Pool) {
		switch {
		case register.IsProviderRunning(pool):
			running++
		case register.IsServed(pool):
			served++
		}
	}) {
		unread, err := register.List(ctx, d.Client, "", listing)
		switch {
		case meta.IsNoMatchError(err):
		case err != nil:
			return []Check{failed(name, "try again", "%v", err)}
		case len(unread) > 0:
			return []Check{skipped(name, "it is unknown whether it runs: you may not list %s", unread[0].Resource)}
		}
	}
	switch {
	case running > 0:
		return []Check{warned(name, "scale it down to have Cadastre serve the pools: see docs/import.md", "the provider runs: it hands out the addresses of %s, and Cadastre does not", ipam.FormatCount(running+served, "pool"))}
	case served > 0:
		return []Check{d.providerEndpoints(ctx, name, "Cadastre hands out the addresses of "+ipam.FormatCount(served, "pool"))}
	}
	return nil
}

// providerEndpoints checks whether the webhooks of the provider have endpoints, although it renews no lease.
func (d *Doctor) providerEndpoints(ctx context.Context, name, served string) Check {
	service := client.ObjectKey{Namespace: d.providerNamespace(ctx), Name: incluster.WebhookService}
	isServing, err := kubeutil.HasReadyEndpoints(ctx, d.Client, service)
	switch {
	case apierrors.IsForbidden(err):
		return skipped(name, "%s; it is unknown whether the provider's webhooks have endpoints: you may not list endpointslices in namespace %s", served, service.Namespace)
	case err != nil:
		return unread(name, "EndpointSlices of namespace "+service.Namespace, err)
	case isServing:
		return warned(name, "scale it down if it runs, or two programs hand out the same addresses; else delete the Service", "%s, and the provider's webhooks have endpoints (Service %s), though it renews no lease", served, service)
	}
	return ok(name, "%s, and the provider does not run", served)
}

// providerNamespace returns the provider's namespace: that of the flag of the operator's Deployment, or
// else the default one.
func (d *Doctor) providerNamespace(ctx context.Context) string {
	found, _ := deployments(ctx, d.Client, d.Operator)
	for i := range found {
		for _, container := range found[i].Spec.Template.Spec.Containers {
			for _, arg := range container.Args {
				if namespace, ok := strings.CutPrefix(arg, "--in-cluster-provider-namespace="); ok {
					return namespace
				}
			}
		}
	}
	return incluster.DefaultNamespace
}
