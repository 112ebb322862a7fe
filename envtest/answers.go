package envtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// probeEvery is the interval at which the API server is probed until it applies the installed
// objects: it learns of them by its own watches, and sends no notification.
const probeEvery = 20 * time.Millisecond

// awaitAnswers blocks until the API server calls the webhooks and enforces the policies. One kind
// of request shows each. All but one are dry runs: the last two concern an object that exists,
// an IPClaim in the operator's namespace that waits for a pool that does not exist.
// awaitAnswers deletes it again.
func (on *plane) awaitAnswers(ctx context.Context) error {
	if err := until(ctx, "calls the mutating webhooks", func() (bool, error) { return on.create(ctx, client.DryRunAll) }); err != nil {
		return err
	}
	if _, err := on.create(ctx); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("trying the webhooks: %w", err)
	}
	return errors.Join(
		until(ctx, "calls the validating webhooks", func() (bool, error) {
			err := on.patch(ctx, `{"spec": {"reclaimPolicy": "Retain"}}`) // no pool allows it
			return apierrors.IsInvalid(err), err
		}),
		// The API server begins to enforce policies in the order in which they were made.
		until(ctx, "enforces the policies", func() (bool, error) {
			err := on.patch(ctx, `{"metadata": {"annotations": {"`+v1alpha1.AnnotationUseGranted+`": "somebody"}}}`)
			return apierrors.IsForbidden(err), err
		}),
		client.IgnoreNotFound(on.k8s.Delete(ctx, probe())),
	)
}

// until blocks until a request gets the answer that shows the behavior of the API server.
func until(ctx context.Context, what string, shows func() (bool, error)) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, probeEvery, true, func(context.Context) (bool, error) {
		ok, err := shows()
		if !errors.Is(err, context.DeadlineExceeded) { // else the answer before is more useful
			last = err
		}
		return ok, nil
	})
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("waiting until the API server %s: %w", what, err), last)
}

// probe returns the IPClaim that shows whether webhooks and policies are in force.
func probe() *v1alpha1.IPClaim {
	return &v1alpha1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "envtest-probe"},
		Spec:       v1alpha1.IPClaimSpec{PoolRef: &v1alpha1.PoolReference{Name: "envtest-probe"}},
	}
}

// create creates the IPClaim, and reports whether the webhook has written its status.
func (on *plane) create(ctx context.Context, options ...client.CreateOption) (bool, error) {
	claim := probe()
	err := on.k8s.Create(ctx, claim, options...)
	return err == nil && claim.Status.Phase != "", err
}

// patch tries a change of the IPClaim, by a dry run.
func (on *plane) patch(ctx context.Context, change string) error {
	return on.k8s.Patch(ctx, probe(), client.RawPatch(types.MergePatchType, []byte(change)), client.DryRunAll)
}
