package installation

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/manifests"
)

// Result represents the outcome of a check.
type Result string

// The outcomes of a check.
const (
	// ResultOK means that everything is as it should be.
	ResultOK Result = "ok"
	// ResultWarning means that it works, and should be otherwise.
	ResultWarning Result = "warning"
	// ResultFailed means that something does not work, or is not protected.
	ResultFailed Result = "failed"
	// ResultSkipped means that it was not checked, because the caller cannot read it or because it
	// does not exist.
	ResultSkipped Result = "skipped"
)

// Check holds the outcome of one check.
type Check struct {
	Name   string `json:"name"`
	Result Result `json:"result"`
	// Message describes the findings.
	Message string `json:"message"`
	// Remedy describes the recommended action.
	Remedy string `json:"remedy,omitempty"`
}

func ok(name, format string, args ...any) Check {
	return Check{Name: name, Result: ResultOK, Message: fmt.Sprintf(format, args...)}
}

func failed(name, remedy, format string, args ...any) Check {
	return Check{Name: name, Result: ResultFailed, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

func warned(name, remedy, format string, args ...any) Check {
	return Check{Name: name, Result: ResultWarning, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

func skipped(name, format string, args ...any) Check {
	return Check{Name: name, Result: ResultSkipped, Message: fmt.Sprintf(format, args...)}
}

// unread returns the check of an object that could not be read.
func unread(name, what string, err error) Check {
	if apierrors.IsForbidden(err) {
		return skipped(name, "you may not read %s", what)
	}
	return failed(name, "try again", "reading %s: %v", what, err)
}

// Doctor checks an installation, with the rights of its caller.
type Doctor struct {
	Client client.Client
	// Namespace is the namespace in which the caller would create a claim.
	Namespace string
	// Operator is the operator's namespace.
	Operator string
	// ServiceAccount is the name of the operator's service account.
	ServiceAccount string
	// Version is the version of the caller's program.
	Version string
	// Now is the API server's time.
	Now func() time.Time
}

// Run makes all checks.
func (d *Doctor) Run(ctx context.Context) []Check {
	var all []Check
	for _, checks := range []func(context.Context) []Check{
		d.definitions, d.webhooks, d.certificates, d.policies, d.replicas, d.versions,
		d.operatorRights, d.ownRights, d.flowControl, d.surroundings, d.trial,
	} {
		all = append(all, checks(ctx)...)
	}
	return all
}

// remedyManifests is the remedy if an installed object is not as it is shipped.
const remedyManifests = "apply the manifests of the operator's version again"

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
