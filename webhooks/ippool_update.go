package webhooks

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/allocator"
)

// +kubebuilder:webhook:path=/validate-ipam-cadastre-dev-v1alpha1-ippool,mutating=false,failurePolicy=fail,sideEffects=None,groups=ipam.cadastre.dev,resources=ippools,verbs=update,versions=v1alpha1,name=update.ippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5
// +kubebuilder:webhook:path=/validate-ipam-cadastre-dev-v1alpha1-localippool,mutating=false,failurePolicy=fail,sideEffects=None,groups=ipam.cadastre.dev,resources=localippools,verbs=update,versions=v1alpha1,name=update.localippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5
// +kubebuilder:webhook:path=/validate-ipam-cadastre-dev-v1alpha1-ippool,mutating=false,failurePolicy=ignore,sideEffects=None,groups=ipam.cadastre.dev,resources=ippools,verbs=delete,versions=v1alpha1,name=delete.ippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5
// +kubebuilder:webhook:path=/validate-ipam-cadastre-dev-v1alpha1-localippool,mutating=false,failurePolicy=ignore,sideEffects=None,groups=ipam.cadastre.dev,resources=localippools,verbs=delete,versions=v1alpha1,name=delete.localippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5

// poolValidator judges what an update of one kind of pool changes. A pool that is created is judged
// by the mutating webhook, before its CIDR is recorded.
type poolValidator[T v1alpha1.Pool] struct{ allocator *allocator.Allocator }

// ValidateCreate has nothing to add to the mutating webhook.
func (v *poolValidator[T]) ValidateCreate(context.Context, T) (admission.Warnings, error) {
	return nil, nil
}

// ValidateUpdate reads the pool as the reconciler will.
func (v *poolValidator[T]) ValidateUpdate(_ context.Context, before, after T) (admission.Warnings, error) {
	if !after.GetDeletionTimestamp().IsZero() || sameSpec(before, after) {
		return nil, nil
	}
	_, errs := adapt.Pool(after)
	if len(errs) == 0 {
		return nil, nil
	}
	return nil, poolSubject(after).invalid(errs...)
}

func sameSpec(a, b v1alpha1.Pool) bool {
	visibility, project := a.SharedWith()
	otherVisibility, otherProject := b.SharedWith()
	return visibility == otherVisibility && project == otherProject && equality.Semantic.DeepEqual(a.PoolSpec(), b.PoolSpec())
}

// ValidateDelete refuses to delete a pool that is in use. Where no webhook runs,
// the pool's finalizer keeps it until its last block is released; so it does where
// the namespace of a pool goes away, for which this is not asked.
func (v *poolValidator[T]) ValidateDelete(_ context.Context, pool T) (admission.Warnings, error) {
	holders, records := v.allocator.Ledger().Holders(adapt.KeyOf(pool), holdersNamed)
	if !pool.GetDeletionTimestamp().IsZero() || records == 0 {
		return nil, nil
	}
	return nil, poolSubject(pool).inUse(records, holders)
}

// holdersNamed is how many holders a refusal names.
const holdersNamed = 3
