package installation

import (
	"context"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
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
	return "the fields that it fills in"
}

// flowControl checks that the operator's requests have a separate priority level.
func (d *Doctor) flowControl(ctx context.Context) []Check {
	const name, level = "flowcontrol", "cadastre"
	const without = "the operator's requests share a priority level with those that wait for it: many creates at once can block each other"
	schema := &flowcontrolv1.FlowSchema{}
	for _, wanted := range []struct {
		what, name string
		into       client.Object
	}{
		{"PriorityLevelConfiguration", level, &flowcontrolv1.PriorityLevelConfiguration{}},
		{"FlowSchema", "cadastre-leader-election", &flowcontrolv1.FlowSchema{}},
		{"FlowSchema", level, schema},
	} {
		err := d.Client.Get(ctx, client.ObjectKey{Name: wanted.name}, wanted.into)
		switch {
		case apierrors.IsNotFound(err):
			return []Check{warned(name, remedyManifests, "there is no %s %s: %s", wanted.what, wanted.name, without)}
		case err != nil:
			return []Check{unread(name, wanted.what+" "+wanted.name, err)}
		}
	}
	if schema.Spec.PriorityLevelConfiguration.Name != level || !isFor(schema, d.account()) {
		return []Check{warned(name, remedyManifests, "the FlowSchema %s is not for the service account %s/%s, or of another level: %s", level, d.Operator, d.ServiceAccount, without)}
	}
	return []Check{ok(name, "the operator's requests have their own priority level")}
}

// isFor reports whether a FlowSchema applies to the operator's service account.
func isFor(schema *flowcontrolv1.FlowSchema, operator manifests.Account) bool {
	for i := range schema.Spec.Rules {
		for _, subject := range schema.Spec.Rules[i].Subjects {
			if account := subject.ServiceAccount; account != nil && account.Namespace == operator.Namespace && account.Name == operator.Name {
				return true
			}
		}
	}
	return false
}

func disruptionBudgets() client.ObjectList { return &policyv1.PodDisruptionBudgetList{} }

// namesIn returns the names of the objects in a list.
func namesIn(list client.ObjectList) []string {
	var names []string
	utilruntime.Must(meta.EachListItem(list, func(obj runtime.Object) error {
		names = append(names, obj.(client.Object).GetName())
		return nil
	}))
	return names
}
