package convert

import (
	"cmp"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// Class reads an IPClass. If it returns errors, the class must not be used.
func Class(obj *v1alpha1.IPClass) (ipam.Class, field.ErrorList) {
	path, spec := field.NewPath("spec"), &obj.Spec
	family := ipam.Family(spec.IPFamily)
	class := ipam.Class{
		Name:         obj.Name,
		Family:       family,
		Selection:    ipam.Selection(cmp.Or(spec.PoolSelection, v1alpha1.SelectFirstFit)),
		Strategy:     ipam.Strategy(spec.Strategy),
		OnExhaustion: ipam.OnExhaustion(spec.OnExhaustion),
		ReuseDelay:   duration(spec.ReuseDelay, -1),
		Reclaim:      ipam.Reclaim(cmp.Or(spec.ReclaimPolicy, v1alpha1.ReclaimDelete)),
		Retention:    duration(spec.RetentionPeriod, 0),
		Visibility:   ipam.Visibility(cmp.Or(spec.Visibility, v1alpha1.VisibilityShared)),
		Project:      spec.Project,
		LocalPools:   spec.AllowLocalPools,
		Lengths:      ipam.Lengths{Min: 0, Max: family.Bits()},
	}
	if spec.Provisioner != v1alpha1.NativeProvisioner {
		class.Provisioner = spec.Provisioner
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

// limit reads the limit of one project.
func limit(path *field.Path, spec *v1alpha1.Limits, target *ipam.Limit) field.ErrorList {
	if spec == nil || spec.PerProject == nil {
		return nil
	}
	path = path.Child("perProject")
	var errs field.ErrorList
	if blocks := spec.PerProject.Blocks; blocks != nil {
		maxBlocks, err := maximum(path.Child("blocks"), intstr.FromString(strconv.FormatInt(*blocks, 10)))
		target.Blocks = maxBlocks
		errs = appendError(errs, err)
	}
	if addresses := spec.PerProject.Addresses; addresses != nil {
		maxAddresses, err := maximum(path.Child("addresses"), *addresses)
		target.Addresses = maxAddresses
		errs = appendError(errs, err)
	}
	return errs
}

// maximum reads a decimal number of 0 or more.
func maximum(path *field.Path, value intstr.IntOrString) (ipam.Maximum, *field.Error) {
	count, ok := space.ParseCount(value.String())
	if !ok {
		return ipam.Maximum{}, field.Invalid(path, value.String(), "must be a decimal number of 0 or more, of up to 39 digits")
	}
	return ipam.Maximum{Set: true, Count: count}, nil
}

// retention returns an error for a retention period that is not positive.
func retention(path *field.Path, d *metav1.Duration) field.ErrorList {
	if d == nil || d.Duration > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, d.Duration.String(), "must be more than 0: leave it out for the default")}
}

// PolicyError returns the first of the errors, for the condition of an object that the API server
// admitted nevertheless, or nil if there is none.
func PolicyError(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	policy := &ipam.PolicyError{Field: errs[0].Field, Value: errs[0].BadValue, Remedy: errs[0].Detail}
	if errs[0].Type == field.ErrorTypeRequired {
		policy.Value = nil
	}
	return policy
}
