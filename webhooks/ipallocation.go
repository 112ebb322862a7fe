package webhooks

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
)

// +kubebuilder:webhook:path=/validate-ipam-cadastre-dev-v1alpha1-ipallocation,mutating=false,failurePolicy=fail,sideEffects=None,groups=ipam.cadastre.dev,resources=ipallocations,verbs=delete,versions=v1alpha1,name=delete.ipallocation.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5

// deleteAllocation makes users release blocks by deleting the holder: it refuses deletions but those
// by the operator, and those that release a retained block. Deletions by the namespace controller and
// the garbage collector do not reach it. An admission policy ensures that only the operator makes or
// changes an IPAllocation; only a webhook can answer with a conflict.
func (s *services) deleteAllocation(_ context.Context, req admission.Request, record *v1alpha1.IPAllocation) error {
	if req.UserInfo.Username == s.Operator || record.Spec.State != v1alpha1.AllocationBound {
		return nil
	}
	if _, unreadable := convert.Record(record); unreadable != nil {
		return nil //nolint:nilerr // there may be no holder to delete
	}
	about := subject{kind: "IPAllocation", name: record.Name}
	return apierrors.NewConflict(about.resource(), about.name, fmt.Errorf("%s is held by %s %s: delete the claim instead",
		record.Spec.CIDR, record.Spec.ClaimRef.Kind, record.Spec.ClaimRef.Name))
}
