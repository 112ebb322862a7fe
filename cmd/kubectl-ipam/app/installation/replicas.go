package installation

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// replicas checks the operator's Deployment, and that one of the replicas leads.
func (d *Doctor) replicas(ctx context.Context) []Check {
	return []Check{d.deployment(ctx), d.leader(ctx)}
}

func (d *Doctor) deployment(ctx context.Context) Check {
	const name = "deployment"
	deployments := &appsv1.DeploymentList{}
	if err := d.Client.List(ctx, deployments, client.InNamespace(d.Operator), Labels()); err != nil {
		return unread(name, "Deployments of namespace "+d.Operator, err)
	}
	if len(deployments.Items) == 0 {
		return skipped(name, "namespace %s has no Deployment with the label app.kubernetes.io/name=cadastre: the operator runs otherwise, or somewhere else", d.Operator)
	}
	return judgeDeployment(&deployments.Items[0])
}

func judgeDeployment(deployment *appsv1.Deployment) Check {
	const name = "deployment"
	remedy := fmt.Sprintf("see kubectl -n %s describe pods -l app.kubernetes.io/name=cadastre, and their logs", deployment.Namespace)
	want, status := int32(1), &deployment.Status
	if deployment.Spec.Replicas != nil {
		want = *deployment.Spec.Replicas
	}
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

func (d *Doctor) leader(ctx context.Context) Check {
	const name = "leader"
	lease := &coordinationv1.Lease{}
	err := d.Client.Get(ctx, client.ObjectKey{Namespace: d.Operator, Name: LeaseName}, lease)
	switch {
	case apierrors.IsNotFound(err):
		return failed(name, "see whether the operator runs: deployment", "there is no Lease %s/%s, so no replica has ever led", d.Operator, LeaseName)
	case err != nil:
		return unread(name, "Lease "+d.Operator+"/"+LeaseName, err)
	}
	return judgeLease(&lease.Spec, d.Now())
}

// clockSlack is the allowed difference between the clocks of the leader and the API server.
const clockSlack = 5 * time.Second

func judgeLease(spec *coordinationv1.LeaseSpec, now time.Time) Check {
	const name, remedy = "leader", "see whether the operator runs: deployment"
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil || spec.LeaseDurationSeconds == nil {
		return failed(name, remedy, "no replica leads, so nothing that waits is served and nothing is released")
	}
	end := spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds)*time.Second + clockSlack)
	if now.After(end) {
		return failed(name, remedy, "%s led last, and has not renewed its lease since %s", *spec.HolderIdentity, at(spec.RenewTime.Time))
	}
	return ok(name, "%s leads", *spec.HolderIdentity)
}

// surroundings checks objects that are recommended and not needed.
func (d *Doctor) surroundings(ctx context.Context) []Check {
	return []Check{
		d.callers(ctx),
		d.recommended(ctx, "poddisruptionbudget", "PodDisruptionBudget", disruptionBudgets(), "a drain of nodes can evict all replicas at once"),
	}
}

func (d *Doctor) recommended(ctx context.Context, name, kind string, list client.ObjectList, without string) Check {
	if err := d.Client.List(ctx, list, client.InNamespace(d.Operator), Labels()); err != nil {
		return unread(name, kind+" of namespace "+d.Operator, err)
	}
	if len(namesIn(list)) == 0 {
		return warned(name, remedyManifests, "namespace %s has no %s of Cadastre: %s", d.Operator, kind, without)
	}
	return ok(name, "%s %s exists", kind, namesIn(list)[0])
}

// imagesOf returns the images of the operator's containers.
func imagesOf(containers []corev1.Container) []string {
	var images []string
	for i := range containers {
		images = append(images, containers[i].Image)
	}
	return images
}
