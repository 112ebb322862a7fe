package operator

import (
	"context"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/absent"
)

// hold is what the operator has on all objects of a kind.
type hold struct {
	kind      schema.GroupVersionKind
	finalizer string
	// pause has an operator that still runs leave the object alone: otherwise it
	// would put the finalizer back.
	pause bool
}

// holds are in the order in which they are let go of: IPAllocations first, as
// whoever has not the right to is refused with those, and then has paused no claim;
// IPAddresses long after their claims, as a running operator repairs them until it
// has seen the pause.
func holds() []hold {
	return []hold{
		{kind: v1alpha1.GroupVersion.WithKind("IPAllocation"), finalizer: v1alpha1.FinalizerHeld},
		{kind: ipamv1.GroupVersion.WithKind("IPAddressClaim"), finalizer: v1alpha1.FinalizerRelease, pause: true},
		{kind: v1alpha1.GroupVersion.WithKind(string(v1alpha1.KindIPPool)), finalizer: v1alpha1.FinalizerPool},
		{kind: v1alpha1.GroupVersion.WithKind(string(v1alpha1.PoolKindLocal)), finalizer: v1alpha1.FinalizerPool},
		{kind: ipamv1.GroupVersion.WithKind("IPAddress"), finalizer: v1alpha1.FinalizerProtect},
	}
}

// LetGo takes the operator's finalizers off everything, so that nothing hangs when
// the operator is removed, and reports how many of each kind there were. Blocks
// stay recorded until the objects are deleted. IPAddressClaims are paused by
// Cluster API's annotation, and stay so. Kinds that are not served are left out.
// It can be repeated.
func LetGo(ctx context.Context, cfg *rest.Config, report io.Writer) error {
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return err
	}
	for _, h := range holds() {
		count, err := h.letGo(ctx, c)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(report, "let go of %d of kind %s\n", count, h.kind.Kind); err != nil {
			return err
		}
	}
	return nil
}

// letGo lets go of all objects of the kind, and counts those that were held.
func (h hold) letGo(ctx context.Context, c client.Client) (count int, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(h.kind.GroupVersion().WithKind(h.kind.Kind + "List"))
	if err := c.List(ctx, list); err != nil {
		return 0, fmt.Errorf("looking for what to let go of: %w", err)
	}
	for i := range list.Items {
		obj := &list.Items[i]
		if !controllerutil.ContainsFinalizer(obj, h.finalizer) {
			continue
		}
		count++
		if err := h.letGoOf(ctx, c, obj); absent.Ignore(err) != nil {
			return 0, fmt.Errorf("letting go of %s %s: %w", h.kind.Kind, client.ObjectKeyFromObject(obj), err)
		}
	}
	return count, nil
}

func (h hold) letGoOf(ctx context.Context, c client.Client, obj *metav1.PartialObjectMetadata) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		obj.SetGroupVersionKind(h.kind)
		if err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		before := obj.DeepCopy()
		if !controllerutil.RemoveFinalizer(obj, h.finalizer) {
			return nil
		}
		if h.pause {
			metav1.SetMetaDataAnnotation(&obj.ObjectMeta, clusterv1.PausedAnnotation, "")
		}
		return c.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
}
