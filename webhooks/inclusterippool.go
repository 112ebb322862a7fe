package webhooks

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/internal/convert"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// Unless the operator serves these kinds, another provider does, whose pools are admitted as they are.
//
// +kubebuilder:webhook:path=/validate-ipam-cluster-x-k8s-io-v1alpha2-inclusterippool,mutating=false,failurePolicy=ignore,sideEffects=None,groups=ipam.cluster.x-k8s.io,resources=inclusterippools,verbs=create;update;delete,versions=v1alpha2,name=inclusterippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5
// +kubebuilder:webhook:path=/validate-ipam-cluster-x-k8s-io-v1alpha2-globalinclusterippool,mutating=false,failurePolicy=ignore,sideEffects=None,groups=ipam.cluster.x-k8s.io,resources=globalinclusterippools,verbs=create;update;delete,versions=v1alpha2,name=globalinclusterippool.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5

// inClusterValidator returns the validator of one kind of the in-cluster provider. Its controller records
// what a pool holds.
func inClusterValidator[T incluster.Pool](s *services) validator[T] {
	if !s.InCluster {
		return validator[T]{}
	}
	return validator[T]{
		create: func(pool T) error { return checkInCluster(pool) },
		update: func(_ context.Context, _ admission.Request, before, after T) (admission.Warnings, error) {
			return nil, s.updateInCluster(before, after)
		},
		remove: func(ctx context.Context, req admission.Request, pool T) error {
			if _, ok := pool.GetAnnotations()[incluster.AnnotationSkipDeleteCheck]; ok {
				return nil
			}
			return s.deletePool(ctx, isDryRun(req), pool)
		},
	}
}

func inClusterSubject(pool incluster.Pool) subject {
	return subject{group: incluster.GroupVersion.Group, kind: string(pool.PoolKind()), name: pool.GetName()}
}

// checkInCluster returns the errors of a pool's spec.
func checkInCluster(pool incluster.Pool) error {
	if _, errs := convert.Pool(pool); len(errs) > 0 {
		return inClusterSubject(pool).invalid(errs...)
	}
	return nil
}

// updateInCluster refuses an edit after which the pool would no longer have an address that is in use, as
// the in-cluster provider does.
func (s *services) updateInCluster(before, after incluster.Pool) error {
	if equality.Semantic.DeepEqual(before.InClusterSpec(), after.InClusterSpec()) {
		return nil
	}
	if err := checkInCluster(after); err != nil {
		return err
	}
	pool, _ := convert.Pool(after)
	former, errs := convert.Pool(before)
	if len(errs) > 0 {
		return nil
	}
	handedOut := func(p ipam.Pool) []space.Range { return convert.Outside(p.CIDR, slices.Collect(p.Withheld.All())) }
	removed := convert.Without(former.CIDR, handedOut(former), handedOut(pool))
	lost := s.Ledger.RecordsIn(pool.Key, ipam.BlocksOf(removed), maxOccupants)
	if len(lost) == 0 {
		return nil
	}
	name := func(record ipam.Record) string { return fmt.Sprintf("%s of %s", record.Block.Addr(), record.Holder) }
	return inClusterSubject(after).invalid(field.Forbidden(field.NewPath("spec", "addresses"),
		"the pool would no longer have addresses that are in use, "+ipam.FormatList(lost, maxListedHolders, name, ", ")+": keep them, or have them released first"))
}
