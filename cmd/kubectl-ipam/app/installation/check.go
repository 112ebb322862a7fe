// Package installation finds the installed parts of Cadastre in a cluster, and checks that all
// exist and are as they are shipped.
package installation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"
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

// get reads an object. If there is none, get returns the check absent, with the message that there
// is none in front of its own. If the object cannot be read, get returns the check of that; else nil.
func (d *Doctor) get(ctx context.Context, obj client.Object, absent Check) *Check {
	kind, err := d.Client.GroupVersionKindFor(obj)
	utilruntime.Must(err)
	key := client.ObjectKeyFromObject(obj)
	what := kind.Kind + " " + strings.TrimPrefix(key.String(), "/")
	err = d.Client.Get(ctx, key, obj)
	switch {
	case apierrors.IsNotFound(err):
		absent.Message = "there is no " + what + absent.Message
		return &absent
	case err != nil:
		return new(unread(absent.Name, what, err))
	}
	return nil
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
	checks := slices.Concat(d.definitions(ctx), d.webhooks(ctx), []Check{d.certificate(ctx)}, d.policies(ctx))
	checks = append(checks,
		d.deployment(ctx), d.leader(ctx), d.versions(ctx),
		d.operatorRights(ctx), d.ownRights(ctx), d.flowControl(ctx), d.callers(ctx), d.disruptionBudget(ctx))
	checks = append(checks, d.inClusterProvider(ctx)...)
	return append(checks, d.trialOfClaim(ctx), d.trialOfRecord(ctx))
}

// remedyManifests is the remedy if an installed object is not as it is shipped.
const remedyManifests = "apply the manifests of the operator's version again"

// The names of the installed objects.
const (
	LeaseName         = "cadastre.ipam.cadastre.dev"
	CertificateSecret = "cadastre-webhook-server-cert"
)

// Labels returns the labels of the objects that the manifests install.
func Labels() client.MatchingLabels {
	return client.MatchingLabels{"app.kubernetes.io/name": "cadastre"}
}

// Namespace returns the operator's namespace: that of the webhooks' Service, or else that of the
// operator's Deployment. If neither can be read, it returns the default namespace.
func Namespace(ctx context.Context, reader client.Reader) string {
	configuration := &admissionv1.MutatingWebhookConfiguration{}
	if reader.Get(ctx, client.ObjectKey{Name: manifests.MutatingWebhooks}, configuration) == nil {
		for i := range configuration.Webhooks {
			if service := configuration.Webhooks[i].ClientConfig.Service; service != nil {
				return service.Namespace
			}
		}
	}
	if found, _ := deployments(ctx, reader, ""); len(found) > 0 {
		return found[0].Namespace
	}
	return manifests.DefaultNamespace
}

// operatorLabels returns the labels of the operator's Deployment and Pods.
func operatorLabels() client.MatchingLabels {
	labels := Labels()
	labels["control-plane"] = "controller-manager"
	return labels
}

// deployments returns the operator's Deployments in a namespace, or in all if that is empty.
func deployments(ctx context.Context, reader client.Reader, namespace string) ([]appsv1.Deployment, error) {
	list := &appsv1.DeploymentList{}
	err := reader.List(ctx, list, client.InNamespace(namespace), operatorLabels())
	return list.Items, err
}

// account returns the account under which the operator runs.
func (d *Doctor) account() manifests.Account {
	return manifests.Account{Namespace: d.Operator, Name: d.ServiceAccount}
}

// AccountIn returns the name of the operator's service account in a namespace: that of its
// Deployment, or else the default one.
func AccountIn(ctx context.Context, reader client.Reader, namespace string) string {
	found, _ := deployments(ctx, reader, namespace)
	for i := range found {
		if account := found[i].Spec.Template.Spec.ServiceAccountName; account != "" {
			return account
		}
	}
	return manifests.ServiceAccount
}

// LeaderSince returns the time at which the operator's leader began, or zero if it cannot be read
// or no replica leads.
func LeaderSince(ctx context.Context, reader client.Reader, namespace string) time.Time {
	lease := &coordinationv1.Lease{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: LeaseName}, lease)
	if err != nil || lease.Spec.AcquireTime == nil || ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
		return time.Time{}
	}
	return lease.Spec.AcquireTime.Time
}

// deployment checks the operator's Deployment.
func (d *Doctor) deployment(ctx context.Context) Check {
	const name = "deployment"
	found, err := deployments(ctx, d.Client, d.Operator)
	if err != nil {
		return unread(name, "Deployments of namespace "+d.Operator, err)
	}
	if len(found) == 0 {
		return skipped(name, "namespace %s has no Deployment with the label app.kubernetes.io/name=cadastre: the operator runs otherwise, or somewhere else", d.Operator)
	}
	return judgeDeployment(&found[0])
}

func judgeDeployment(deployment *appsv1.Deployment) Check {
	const name = "deployment"
	remedy := fmt.Sprintf("see kubectl -n %s describe pods -l app.kubernetes.io/name=cadastre, and their logs", deployment.Namespace)
	want, status := ptr.Deref(deployment.Spec.Replicas, 1), &deployment.Status
	what := deployment.Namespace + "/" + deployment.Name
	switch {
	case want == 0:
		return failed(name, fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=2", deployment.Namespace, deployment.Name), "%s is scaled to no replica", what)
	case status.AvailableReplicas == 0:
		return failed(name, remedy, "none of %d replicas of %s is available, so claims cannot be created", want, what)
	case status.ObservedGeneration < deployment.Generation || status.UpdatedReplicas < want:
		return warned(name, "wait until it is rolled out: kubectl ipam doctor --wait", "%s is being rolled out: %d of %d replicas are updated", what, status.UpdatedReplicas, want)
	case status.AvailableReplicas < want:
		return warned(name, remedy, "%d of %d replicas of %s are available", status.AvailableReplicas, want, what)
	case want == 1:
		return warned(name, "run two replicas", "%s has one replica, so no claim can be created while it restarts", what)
	}
	return ok(name, "all %d replicas of %s are available", want, what)
}

// leader checks that one of the replicas leads.
func (d *Doctor) leader(ctx context.Context) Check {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: d.Operator, Name: LeaseName}}
	absent := failed("leader", "see whether the operator runs: deployment", ", so no replica has ever led")
	if bad := d.get(ctx, lease, absent); bad != nil {
		return *bad
	}
	return judgeLease(&lease.Spec, d.Now())
}

// clockSlack is the allowed difference between the clocks of the leader and the API server.
const clockSlack = 5 * time.Second

func judgeLease(spec *coordinationv1.LeaseSpec, now time.Time) Check {
	const name, remedy = "leader", "see whether the operator runs: deployment"
	if ptr.Deref(spec.HolderIdentity, "") == "" || spec.RenewTime == nil || spec.LeaseDurationSeconds == nil {
		return failed(name, remedy, "no replica leads, so nothing that waits is served and nothing is released")
	}
	end := spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds)*time.Second + clockSlack)
	if now.After(end) {
		return failed(name, remedy, "%s led last, and has not renewed its lease since %s", *spec.HolderIdentity, at(spec.RenewTime.Time))
	}
	return ok(name, "%s leads", *spec.HolderIdentity)
}

// disruptionBudget checks an object that is recommended and not needed.
func (d *Doctor) disruptionBudget(ctx context.Context) Check {
	const name, kind = "poddisruptionbudget", "PodDisruptionBudget"
	budgets := &policyv1.PodDisruptionBudgetList{}
	if err := d.Client.List(ctx, budgets, client.InNamespace(d.Operator), Labels()); err != nil {
		return unread(name, kind+" of namespace "+d.Operator, err)
	}
	if len(budgets.Items) == 0 {
		return warned(name, remedyManifests, "namespace %s has no %s of Cadastre: a drain of nodes can evict all replicas at once", d.Operator, kind)
	}
	return ok(name, "%s %s exists", kind, budgets.Items[0].Name)
}
