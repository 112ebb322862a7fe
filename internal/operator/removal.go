package operator

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,verbs=create

// removal is the policy that keeps everything new out while the operator is removed, and
// its binding.
//
//go:embed removal.yaml
var removal string

const (
	// removalMessage is what the policy answers.
	removalMessage = "Cadastre is being removed"
	// enforcedWithin bounds the wait until the API server enforces the policy, of which
	// it learns by a watch of its own.
	enforcedWithin = 30 * time.Second
	enforcedEvery  = 100 * time.Millisecond
)

// isOperator is an error where the client is not the operator: nobody else may remove
// the finalizers of IPAllocations.
func isOperator(ctx context.Context, c client.Client, o Options) error {
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return fmt.Errorf("asking the API server who this is: %w", err)
	}
	if user := review.Status.UserInfo.Username; user != o.User() {
		return fmt.Errorf("finalizers are removed by %s alone, and this is %s: run remove-finalizers in a pod of the operator", o.User(), user)
	}
	return nil
}

// refuseNew installs the policy of the removal, and waits until it is in force.
func refuseNew(ctx context.Context, c client.Client) error {
	policy, binding := &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	documents := strings.SplitN(removal, "\n---\n", 2)
	for i, obj := range []client.Object{policy, binding} {
		if err := yaml.UnmarshalStrict([]byte(documents[i]), obj); err != nil {
			return fmt.Errorf("reading the policy of the removal: %w", err)
		}
		if err := c.Create(ctx, obj); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("installing the policy %s: %w", obj.GetName(), err)
		}
	}
	return nil
}

// awaitRefusal waits until the API server refuses what is new, by a create that is never
// stored.
func awaitRefusal(ctx context.Context, c client.Client, namespace string) error {
	name := ipam.Name{Namespace: namespace, Name: "removal-probe"}
	probe := ipam.Record{
		Name: name, Block: netip.MustParsePrefix("192.0.2.0/32"), Pool: ipam.PoolNamed(name.Name),
		Holder: adapt.HolderOfClaim(name), Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound,
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, enforcedEvery, enforcedWithin, true, func(ctx context.Context) (bool, error) {
		last = c.Create(ctx, adapt.Allocation(probe), client.DryRunAll)
		return meta.IsNoMatchError(last) || last != nil && strings.Contains(last.Error(), removalMessage), nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("waiting until nothing new is admitted: %w", err), last)
	}
	return nil
}
