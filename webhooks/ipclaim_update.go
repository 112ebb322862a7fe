package webhooks

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
)

// +kubebuilder:webhook:path=/validate-ipam-cadastre-dev-v1alpha1-ipclaim,mutating=false,failurePolicy=fail,sideEffects=None,groups=ipam.cadastre.dev,resources=ipclaims,verbs=update,versions=v1alpha1,name=update.ipclaim.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5

// claimValidator implements a validator that reserves some fields for the operator, and lets class
// and pool decide whether blocks are retained. The claim's CEL rules check all that concerns one
// claim alone.
type claimValidator struct {
	catalog *inventory.Catalog
	// operator is the user name of the operator itself.
	operator string
}

// ValidateCreate adds no check: the mutating webhook, which must decide everything before it
// records a block, has made all refusals.
func (v *claimValidator) ValidateCreate(context.Context, *v1alpha1.IPClaim) (admission.Warnings, error) {
	return nil, nil
}

// ValidateUpdate refuses a block that the operator did not fill in, and reclaimPolicy Retain if it
// is not allowed.
func (v *claimValidator) ValidateUpdate(ctx context.Context, before, after *v1alpha1.IPClaim) (admission.Warnings, error) {
	req, err := admission.RequestFromContext(ctx)
	if err != nil {
		return nil, err
	}
	if !after.DeletionTimestamp.IsZero() || req.UserInfo.Username == v.operator {
		return nil, nil
	}
	var errs field.ErrorList
	for _, f := range []struct{ name, before, after string }{
		{"className", before.Spec.ClassName, after.Spec.ClassName},
		{"cidr", before.Spec.CIDR, after.Spec.CIDR},
		{"allocationName", before.Spec.AllocationName, after.Spec.AllocationName},
	} {
		if f.before == "" && f.after != "" {
			errs = append(errs, field.Forbidden(field.NewPath("spec", f.name), "is filled in by the operator once the claim is bound: make a new claim to ask for it"))
		}
	}
	claim := subject{kind: "IPClaim", name: after.Name}
	if len(errs) > 0 {
		return nil, claim.invalid(errs...)
	}
	if after.Spec.ReclaimPolicy != v1alpha1.ReclaimRetain || before.Spec.ReclaimPolicy == v1alpha1.ReclaimRetain {
		return nil, nil
	}
	request, errs := convert.Claim(after)
	if len(errs) > 0 {
		return nil, claim.invalid(errs...)
	}
	if err := v.catalog.MayRetain(request, after.Spec.AllocationName); err != nil {
		return nil, claim.refusal(err)
	}
	return nil, nil
}

// ValidateDelete lets every deletion pass.
func (v *claimValidator) ValidateDelete(context.Context, *v1alpha1.IPClaim) (admission.Warnings, error) {
	return nil, nil
}
