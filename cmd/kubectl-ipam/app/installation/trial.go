package installation

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// trial asks for a block and tries to forge a record, both as dry runs: nothing is recorded.
func (d *Doctor) trial(ctx context.Context) []Check {
	return []Check{d.trialOfClaim(ctx), d.trialOfRecord(ctx)}
}

func (d *Doctor) trialOfClaim(ctx context.Context) Check {
	claim := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, GenerateName: "doctor-"}}
	err := d.Client.Create(ctx, claim, client.DryRunAll)
	return judgeTrial(claim, err)
}

const trialName = "trial/claim"

// judgeTrial judges the outcome of a claim that names no class and no pool.
func judgeTrial(claim *v1alpha1.IPClaim, err error) Check {
	const answered = "the webhooks answer"
	if err != nil {
		return judgeRefusal(claim, err)
	}
	ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case claim.Status.Phase == v1alpha1.ClaimBound:
		return ok(trialName, "%s: a claim in namespace %s would get %s", answered, claim.Namespace, claim.Status.AllocatedCIDR)
	case claim.Status.Phase == "" || ready == nil:
		return failed(trialName, remedyManifests, "no webhook answered, so claims get no block when they are created")
	}
	return warned(trialName, "see kubectl ipam pools and kubectl ipam default-class", "%s: a claim in namespace %s that names no class would wait: %s", answered, claim.Namespace, ready.Message)
}

func judgeRefusal(claim *v1alpha1.IPClaim, err error) Check {
	message := withoutPaths(err.Error())
	switch code := codeOf(err); {
	case apierrors.IsForbidden(err) && strings.Contains(message, "cannot create resource"):
		return skipped(trialName, "you may not create ipclaims in namespace %s", claim.Namespace)
	case apierrors.IsNotFound(err) && strings.Contains(message, "namespaces"):
		return skipped(trialName, "namespace %s does not exist: choose another with -n", claim.Namespace)
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return failed(trialName, "apply the CRDs", "the API server does not know IPClaims")
	case code >= http.StatusInternalServerError && code != http.StatusInsufficientStorage:
		return failed(trialName, "see whether the operator runs and can be reached: deployment, webhooks", "no replica answers: %s", message)
	case code == http.StatusInsufficientStorage || code == http.StatusTooManyRequests || code == http.StatusForbidden || code == http.StatusUnprocessableEntity:
		return warned(trialName, "see the message", "the webhooks answer, and refuse a claim in namespace %s that names no class: %s", claim.Namespace, message)
	}
	return failed(trialName, "try again", "creating a claim as a dry run: %s", message)
}

// codeOf returns the HTTP status of an error of the API server, or zero for any other error.
func codeOf(err error) int32 {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

var aURL = regexp.MustCompile(`https?://[^\s"]+`)

// withoutPaths removes the paths of URLs from a message: the path of a webhook is a secret.
func withoutPaths(message string) string {
	return aURL.ReplaceAllStringFunc(message, func(text string) string {
		parsed, err := url.Parse(text)
		if err != nil {
			return "…"
		}
		return parsed.Scheme + "://" + parsed.Host
	})
}

// trialOfRecord tries to create an IPAllocation. Only the operator can create one.
func (d *Doctor) trialOfRecord(ctx context.Context) Check {
	const name = "trial/record"
	record := &v1alpha1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, GenerateName: "doctor-"},
		Spec: v1alpha1.IPAllocationSpec{
			CIDR: "192.0.2.0/32", IPFamily: v1alpha1.IPv4, RoutingDomain: "doctor", Purpose: v1alpha1.PurposeClaim,
			ClaimRef: v1alpha1.ClaimReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "IPClaim", Name: "doctor"},
		},
	}
	err := d.Client.Create(ctx, record, client.DryRunAll)
	switch {
	case err == nil:
		return failed(name, "see the checks of policies", "the register is not protected: you can make an IPAllocation")
	case strings.Contains(err.Error(), "ValidatingAdmissionPolicy"):
		return ok(name, "the register is protected: a forged record is refused")
	case apierrors.IsForbidden(err):
		return skipped(name, "you may not create ipallocations, so you cannot try it")
	}
	return skipped(name, "could not be tried: %s", withoutPaths(err.Error()))
}
