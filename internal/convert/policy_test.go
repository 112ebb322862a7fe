package convert

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestPolicyErrorStatesFirstFieldError(t *testing.T) {
	cidr, length := field.NewPath("spec", "cidr"), field.NewPath("spec", "prefixLength")
	for want, errs := range map[string]field.ErrorList{
		"":                                   nil,
		"spec.prefixLength: 8: is too large": {field.Invalid(length, 8, "is too large"), field.Required(cidr, "set one")},
		"spec.cidr: Required value: set one of both": {field.Required(cidr, "set one of both")},
	} {
		err := PolicyError(errs)
		if err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%v: got %v, want %q", errs, err, want)
		}
	}
}
