package webhooks

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/convert"
)

// +kubebuilder:webhook:path=/validate-ipam-cadastre-dev-v1alpha1-ippool,mutating=false,failurePolicy=fail,sideEffects=None,groups=ipam.cadastre.dev,resources=ippools,verbs=update,versions=v1alpha1,name=update.ippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5
// +kubebuilder:webhook:path=/validate-ipam-cadastre-dev-v1alpha1-localippool,mutating=false,failurePolicy=fail,sideEffects=None,groups=ipam.cadastre.dev,resources=localippools,verbs=update,versions=v1alpha1,name=update.localippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5
// +kubebuilder:webhook:path=/validate-ipam-cadastre-dev-v1alpha1-ippool,mutating=false,failurePolicy=ignore,sideEffects=None,groups=ipam.cadastre.dev,resources=ippools,verbs=delete,versions=v1alpha1,name=delete.ippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5
// +kubebuilder:webhook:path=/validate-ipam-cadastre-dev-v1alpha1-localippool,mutating=false,failurePolicy=ignore,sideEffects=None,groups=ipam.cadastre.dev,resources=localippools,verbs=delete,versions=v1alpha1,name=delete.localippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5

// poolValidator judges what an update of one kind of pool changes. A pool that is created is judged
// by the mutating webhook, before its CIDR is recorded.
type poolValidator[T v1alpha1.Pool] struct {
	allocator.Parts
	live client.Reader
}

// ValidateCreate has nothing to add to the mutating webhook.
func (v *poolValidator[T]) ValidateCreate(context.Context, T) (admission.Warnings, error) {
	return nil, nil
}

// ValidateUpdate reads the pool as the reconciler will.
func (v *poolValidator[T]) ValidateUpdate(_ context.Context, before, after T) (admission.Warnings, error) {
	if !after.GetDeletionTimestamp().IsZero() || sameSpec(before, after) {
		return nil, nil
	}
	pool, errs := convert.Pool(after)
	var warnings []string
	if !sameGateway(before.PoolSpec().Network, after.PoolSpec().Network) {
		edges, refused := edgeGateway(after, pool.CIDR)
		warnings, errs = append(warnings, edges...), append(errs, refused...)
	}
	if len(errs) > 0 {
		return nil, poolSubject(after).invalid(errs...)
	}
	if !slices.Equal(before.PoolSpec().ClassNames, pool.Classes) {
		warnings = append(warnings, classWarnings(v.Catalogue, pool)...)
	}
	return append(warnings, networkWarnings(v.Parts, before.PoolSpec().Network, after.PoolSpec().Network, pool)...), nil
}

// sameGateway reports whether an update leaves the gateway, and whether the addresses at the
// edges of the subnet are for hosts, as they are.
func sameGateway(a, b *v1alpha1.PoolNetwork) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Gateway == b.Gateway && a.AllocateEdgeAddresses == b.AllocateEdgeAddresses
}

func sameSpec(a, b v1alpha1.Pool) bool {
	visibility, project := a.SharedWith()
	otherVisibility, otherProject := b.SharedWith()
	return visibility == otherVisibility && project == otherProject && equality.Semantic.DeepEqual(a.PoolSpec(), b.PoolSpec())
}

// ValidateDelete refuses to delete a pool that is in use by what is not itself being
// deleted. Where no webhook runs,
// the pool's finalizer keeps it until its last block is released; so it does where
// the namespace of a pool goes away, for which this is not asked.
func (v *poolValidator[T]) ValidateDelete(ctx context.Context, pool T) (admission.Warnings, error) {
	if !pool.GetDeletionTimestamp().IsZero() {
		return nil, nil
	}
	going := isGoingLive(v.live)
	if req, err := admission.RequestFromContext(ctx); err != nil {
		return nil, err
	} else if req.DryRun != nil && *req.DryRun {
		going = isGoingSeen(v.Catalogue)
	}
	u, err := useOf(ctx, going, v.Ledger, convert.KeyOf(pool))
	switch {
	case err != nil:
		return nil, poolSubject(pool).refusal(err)
	case u.isNone():
		return nil, nil
	default:
		return nil, poolSubject(pool).inUse(u)
	}
}
