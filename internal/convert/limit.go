package convert

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// limit reads what one project may hold.
func limit(path *field.Path, spec *v1alpha1.Limits, into *ipam.Limit) field.ErrorList {
	if spec == nil || spec.PerProject == nil {
		return nil
	}
	path = path.Child("perProject")
	var errs field.ErrorList
	if blocks := spec.PerProject.Blocks; blocks != nil {
		most, err := maximum(path.Child("blocks"), intstr.FromString(strconv.FormatInt(*blocks, 10)))
		into.Blocks = most
		errs = appendError(errs, err)
	}
	if addresses := spec.PerProject.Addresses; addresses != nil {
		most, err := maximum(path.Child("addresses"), *addresses)
		into.Addresses = most
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

// retention refuses a retention period that is not positive.
func retention(path *field.Path, d *metav1.Duration) field.ErrorList {
	if d == nil || d.Duration > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, d.Duration.String(), "must be more than 0: leave it out for the default")}
}
