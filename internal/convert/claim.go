package convert

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Claim reads what an IPClaim asks for.
func Claim(obj *v1alpha1.IPClaim) (ipam.Request, field.ErrorList) {
	path, spec := field.NewPath("spec"), &obj.Spec
	req := ipam.Request{
		Claim:   ipam.Name{Namespace: obj.Namespace, Name: obj.Name},
		Class:   spec.ClassName,
		Length:  ipam.NoLength,
		Reclaim: ipam.Reclaim(spec.ReclaimPolicy),

		RequestedBy: obj.Annotations[v1alpha1.AnnotationRequestedBy],
	}
	req.Granted = spec.PoolRef != nil && obj.Annotations[v1alpha1.AnnotationUseGranted] == spec.PoolRef.Name
	errs := claimTarget(path, spec, &req)
	if spec.CIDR != "" {
		block, err := Block(path.Child("cidr"), spec.CIDR)
		req.Block = block
		errs = appendError(errs, err)
	}
	if spec.AllocationName != "" && spec.CIDR == "" {
		errs = append(errs, field.Forbidden(path.Child("allocationName"), "is filled in together with cidr: leave it out"))
	}
	if len(errs) > 0 {
		return req, errs
	}
	family, err := familyOf(path.Child("ipFamily"), ipam.Family(spec.IPFamily), req.Block)
	req.Family = family
	errs = appendError(errs, err)
	bits, err := length(path.Child("prefixLength"), spec.PrefixLength, familyOr6(family))
	req.Length = bits
	errs = appendError(errs, err)
	if len(errs) == 0 && req.Block.IsValid() && bits != ipam.NoLength && bits != req.Block.Bits() {
		errs = append(errs, field.Invalid(path.Child("prefixLength"), bits,
			fmt.Sprintf("cidr asks for a /%d: remove one of them", req.Block.Bits())))
	}
	return req, errs
}

// claimTarget reads from where the block is to come.
func claimTarget(path *field.Path, spec *v1alpha1.IPClaimSpec, req *ipam.Request) field.ErrorList {
	named := 0
	var errs field.ErrorList
	if spec.ClassName != "" {
		named++
		errs = append(errs, objectName(path.Child("className"), spec.ClassName)...)
	}
	if spec.PoolRef != nil {
		named++
		errs = append(errs, objectName(path.Child("poolRef", "name"), spec.PoolRef.Name)...)
		req.Pool = PoolKey(req.Claim.Namespace, *spec.PoolRef)
	}
	if spec.PoolSelector != nil {
		named++
		path := path.Child("poolSelector")
		switch {
		case !isTooLarge(spec.PoolSelector):
			errs = appendError(errs, readSelector(path, spec.PoolSelector, req))
		case spec.AllocationName == "":
			errs = append(errs, tooLarge(path))
		default: // an earlier version has stored and bound it
			req.Selects = func(map[string]string) bool { return false }
		}
	}
	if named > 1 {
		errs = append(errs, field.Invalid(path, "className, poolRef, poolSelector", "exclude each other: keep one of them"))
	}
	return errs
}
