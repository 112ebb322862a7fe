package installation

import (
	"context"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/manifests"
)

// The names of the installed objects.
const (
	LeaseName         = "cadastre.ipam.cadastre.dev"
	CertificateSecret = "cadastre-webhook-server-cert"
	MutatingWebhook   = "zz-cadastre-mutating-webhook-configuration"
	ValidatingWebhook = "cadastre-validating-webhook-configuration"
)

// Labels returns the labels of the objects that the manifests install.
func Labels() client.MatchingLabels {
	return client.MatchingLabels{"app.kubernetes.io/name": "cadastre"}
}

// Namespace returns the operator's namespace: that of the webhooks' Service, or else that of the
// operator's Deployment. If neither can be read, it returns the default namespace.
func Namespace(ctx context.Context, reader client.Reader) string {
	configuration := &admissionv1.MutatingWebhookConfiguration{}
	if reader.Get(ctx, client.ObjectKey{Name: MutatingWebhook}, configuration) == nil {
		for i := range configuration.Webhooks {
			if service := configuration.Webhooks[i].ClientConfig.Service; service != nil {
				return service.Namespace
			}
		}
	}
	deployments := &appsv1.DeploymentList{}
	if reader.List(ctx, deployments, Labels()) == nil {
		for i := range deployments.Items {
			return deployments.Items[i].Namespace
		}
	}
	return manifests.DefaultNamespace
}

// account returns the account under which the operator runs.
func (d *Doctor) account() manifests.Account {
	return manifests.Account{Namespace: d.Operator, Name: d.ServiceAccount}
}

// AccountIn returns the name of the operator's service account in a namespace: that of its
// Deployment, or else the default one.
func AccountIn(ctx context.Context, reader client.Reader, namespace string) string {
	deployments := &appsv1.DeploymentList{}
	if reader.List(ctx, deployments, client.InNamespace(namespace), Labels()) == nil {
		for i := range deployments.Items {
			if account := deployments.Items[i].Spec.Template.Spec.ServiceAccountName; account != "" {
				return account
			}
		}
	}
	return manifests.ServiceAccount
}

// LeaderSince returns the time at which the operator's leader began, or zero if it cannot be read
// or no replica leads.
func LeaderSince(ctx context.Context, reader client.Reader, namespace string) time.Time {
	lease := &coordinationv1.Lease{}
	if reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: LeaseName}, lease) != nil {
		return time.Time{}
	}
	if lease.Spec.AcquireTime == nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return time.Time{}
	}
	return lease.Spec.AcquireTime.Time
}
