package installation

import (
	"context"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/manifests"
)

// removalPolicy is the policy that `manager remove-finalizers` installs.
const removalPolicy = "cadastre-removal"

// policies checks the policies that reserve the records, and the fields that the operator fills
// in, for the operator, and checks that they are bound.
func (d *Doctor) policies(ctx context.Context) []Check {
	var checks []Check
	shipped := manifests.Policies(d.account())
	for i := range shipped {
		checks = append(checks, d.policy(ctx, &shipped[i]))
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
	if d.Client.Get(ctx, client.ObjectKey{Name: removalPolicy}, binding) == nil {
		checks = append(checks, failed("policy/"+removalPolicy, "delete the ValidatingAdmissionPolicyBinding and the ValidatingAdmissionPolicy "+removalPolicy+" to go on", "Cadastre is being removed, and nothing is handed out"))
	}
	return checks
}

func (d *Doctor) policy(ctx context.Context, shipped *admissionv1.ValidatingAdmissionPolicy) Check {
	name, key := "policy/"+shipped.Name, client.ObjectKey{Name: shipped.Name}
	live, binding := &admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}
	err := d.Client.Get(ctx, key, live)
	switch {
	case apierrors.IsNotFound(err):
		return failed(name, remedyManifests, "there is no ValidatingAdmissionPolicy %s, so users other than the operator can write %s", shipped.Name, protects(shipped))
	case err != nil:
		return unread(name, "ValidatingAdmissionPolicy "+shipped.Name, err)
	}
	err = d.Client.Get(ctx, key, binding)
	switch {
	case apierrors.IsNotFound(err):
		return failed(name, remedyManifests, "there is no ValidatingAdmissionPolicyBinding %s, so users other than the operator can write %s", shipped.Name, protects(shipped))
	case err != nil:
		return unread(name, "ValidatingAdmissionPolicyBinding "+shipped.Name, err)
	}
	if wrong := append(manifests.PolicyDifferences(live, shipped), manifests.BindingDifferences(binding, shipped.Name)...); len(wrong) > 0 {
		return failed(name, remedyManifests, "%s, so users other than the operator may be able to write %s", strings.Join(wrong, "; "), protects(shipped))
	}
	if live.Status.TypeChecking != nil && len(live.Status.TypeChecking.ExpressionWarnings) > 0 {
		return warned(name, "apply the CRDs of the operator's version", "the API server warns of %s: %s", live.Status.TypeChecking.ExpressionWarnings[0].FieldRef, live.Status.TypeChecking.ExpressionWarnings[0].Warning)
	}
	return ok(name, "is as shipped, and bound")
}

// protects names the data that a policy reserves for the operator.
func protects(shipped *admissionv1.ValidatingAdmissionPolicy) string {
	if shipped.Name == "cadastre-allocations" {
		return "the register"
	}
	return "what it fills in"
}
