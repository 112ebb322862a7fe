package operator

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// removal is the policy that keeps everything new out while the operator is removed, and
// its binding.
//
//go:embed removal.yaml
var removal string

const (
	// removalRole is the ClusterRole that allows to install the policy. The operator has it
	// for its removal alone.
	removalRole = "cadastre-removal"
	// removalMessage is what the policy answers.
	removalMessage = "Cadastre is being removed"
	// enforcedWithin bounds the wait until the API server enforces the policy, of which
	// it learns by a watch of its own.
	enforcedWithin = 30 * time.Second
	enforcedEvery  = 100 * time.Millisecond
	// permittedWithin bounds the wait until the right to install it counts, which is bound
	// just before.
	permittedWithin = 5 * time.Second
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

// refuseNew installs the policy of the removal and its binding. It applies them, as a right
// to create by POST cannot be limited to one name.
func refuseNew(ctx context.Context, c client.Client, o Options) error {
	for document := range strings.SplitSeq(removal, "\n---\n") {
		obj := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &obj.Object); err != nil {
			return fmt.Errorf("reading the policy of the removal: %w", err)
		}
		var last error
		err := wait.PollUntilContextTimeout(ctx, enforcedEvery, permittedWithin, true, func(ctx context.Context) (bool, error) {
			err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(obj), client.FieldOwner(removalRole), client.ForceOwnership)
			if ctx.Err() == nil || last == nil { // otherwise the last answer says more
				last = err
			}
			return !apierrors.IsForbidden(last), nil
		})
		switch {
		case apierrors.IsForbidden(last):
			return fmt.Errorf("installing the policy of the removal: %w: bind the ClusterRole that allows it, and run this again: kubectl create clusterrolebinding %s --clusterrole=%[2]s --serviceaccount=%s:%s",
				last, removalRole, o.Namespace, o.ServiceAccount)
		case last != nil || err != nil:
			return fmt.Errorf("installing the policy of the removal: %w", errors.Join(last, err))
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
		Holder: convert.HolderOfClaim(name), Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound,
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, enforcedEvery, enforcedWithin, true, func(ctx context.Context) (bool, error) {
		last = c.Create(ctx, convert.Allocation(probe), client.DryRunAll)
		return meta.IsNoMatchError(last) || last != nil && strings.Contains(last.Error(), removalMessage), nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("waiting until nothing new is admitted: %w", err), last)
	}
	return nil
}
