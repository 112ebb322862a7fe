package convert

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// PolicyError is the first of the errors, for the condition of an object that the API
// server admitted all the same, or nil where there is none.
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
