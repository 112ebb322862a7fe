package convert

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Class reads an IPClass. Where errors are returned, it must not be used.
func Class(obj *v1alpha1.IPClass) (ipam.Class, field.ErrorList) {
	path, spec := field.NewPath("spec"), &obj.Spec
	family := ipam.Family(spec.IPFamily)
	class := ipam.Class{
		Name:         obj.Name,
		Native:       spec.Provisioner == "" || spec.Provisioner == v1alpha1.NativeProvisioner,
		Family:       family,
		Selection:    ipam.Selection(orDefault(spec.PoolSelection, v1alpha1.SelectFirstFit)),
		Strategy:     ipam.Strategy(spec.Strategy),
		OnExhaustion: ipam.OnExhaustion(spec.OnExhaustion),
		ReuseDelay:   duration(spec.ReuseDelay, -1),
		Reclaim:      ipam.Reclaim(orDefault(spec.ReclaimPolicy, v1alpha1.ReclaimDelete)),
		Retention:    duration(spec.RetentionPeriod, 0),
		Visibility:   ipam.Visibility(orDefault(spec.Visibility, v1alpha1.VisibilityShared)),
		Project:      spec.Project,
		LocalPools:   spec.AllowLocalPools,
		Lengths:      ipam.Lengths{Min: 0, Max: family.Bits()},
	}
	class.AllowRetain = class.Reclaim == ipam.ReclaimRetain
	if spec.AllowRetain != nil {
		class.AllowRetain = *spec.AllowRetain
	}
	errs := append(notNegative(path.Child("reuseDelay"), spec.ReuseDelay), retention(path.Child("retentionPeriod"), spec.RetentionPeriod)...)
	errs = append(errs, limit(path.Child("limits"), spec.Limits, &class.Limit)...)
	if class.Reclaim == ipam.ReclaimRetain && !class.AllowRetain {
		errs = append(errs, field.Invalid(path.Child("allowRetain"), false, "must not be false where reclaimPolicy is Retain: remove one of them"))
	}
	errs = append(errs, consumer(spec.Visibility, spec.Project)...)
	bits, err := length(path.Child("defaultPrefixLength"), spec.DefaultPrefixLength, family)
	class.Length = bits
	errs = appendError(errs, err)
	if bounds := spec.AllowedPrefixLengths; bounds != nil {
		errs = append(errs, classLengths(path.Child("allowedPrefixLengths"), bounds, &class)...)
	}
	if len(errs) == 0 && class.Length != ipam.NoLength && !class.Lengths.Contain(class.Length) {
		errs = append(errs, field.Invalid(path.Child("defaultPrefixLength"), class.Length, "must lie within allowedPrefixLengths: change one of them"))
	}
	return class, errs
}

func classLengths(path *field.Path, bounds *v1alpha1.PrefixLengthBounds, class *ipam.Class) field.ErrorList {
	var errs field.ErrorList
	if bounds.Min != nil {
		bits, err := length(path.Child("min"), bounds.Min, class.Family)
		class.Lengths.Min = bits
		errs = appendError(errs, err)
	}
	if bounds.Max != nil {
		bits, err := length(path.Child("max"), bounds.Max, class.Family)
		class.Lengths.Max = bits
		errs = appendError(errs, err)
	}
	if len(errs) == 0 && class.Lengths.Min > class.Lengths.Max {
		errs = append(errs, field.Invalid(path.Child("min"), class.Lengths.Min, "must not be greater than max: swap them"))
	}
	return errs
}
