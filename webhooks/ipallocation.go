package webhooks

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
)

// +kubebuilder:webhook:path=/validate-ipam-cadastre-dev-v1alpha1-ipallocation,mutating=false,failurePolicy=fail,sideEffects=None,groups=ipam.cadastre.dev,resources=ipallocations,verbs=delete,versions=v1alpha1,name=delete.ipallocation.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5

// allocationValidator implements a validator that makes users release blocks by deleting the
// holder. An admission policy ensures that only the operator makes or changes an IPAllocation; only
// a webhook can answer with a conflict.
type allocationValidator struct {
	// operator is the user name of the operator itself.
	operator string
}

// ValidateCreate leaves creation to the policy.
func (v *allocationValidator) ValidateCreate(context.Context, *v1alpha1.IPAllocation) (admission.Warnings, error) {
	return nil, nil
}

// ValidateUpdate leaves updates to the policy.
func (v *allocationValidator) ValidateUpdate(context.Context, *v1alpha1.IPAllocation, *v1alpha1.IPAllocation) (admission.Warnings, error) {
	return nil, nil
}

// ValidateDelete allows deletions by the operator, and deletions that release a retained block.
// Deletions by the namespace controller and the garbage collector do not reach it.
func (v *allocationValidator) ValidateDelete(ctx context.Context, record *v1alpha1.IPAllocation) (admission.Warnings, error) {
	req, err := admission.RequestFromContext(ctx)
	if err != nil {
		return nil, err
	}
	if req.UserInfo.Username == v.operator || record.Spec.State != v1alpha1.AllocationBound || !record.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	if _, unreadable := convert.Record(record); unreadable != nil {
		return nil, nil //nolint:nilerr // there may be no holder to delete
	}
	s := subject{kind: "IPAllocation", plural: "ipallocations", name: record.Name}
	return nil, apierrors.NewConflict(s.resource(), s.name, errors.New(record.Spec.CIDR+" is held by "+record.Spec.ClaimRef.Kind+" "+record.Spec.ClaimRef.Name+": delete the claim instead"))
}
