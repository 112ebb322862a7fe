package installation

import (
	"context"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/manifests"
)

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
	return []Check{ok(name, "the operator's requests have a priority level of their own")}
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
