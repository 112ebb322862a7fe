package convert

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

func appendError(errs field.ErrorList, err *field.Error) field.ErrorList {
	if err == nil {
		return errs
	}
	return append(errs, err)
}

// notNegative refuses a time that is to be waited and lies in the past.
func notNegative(path *field.Path, d *metav1.Duration) field.ErrorList {
	if d == nil || d.Duration >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, d.Duration.String(), "must not be negative: leave it out for none")}
}

func duration(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}

// consumer says whose a pool or a class for consumers is.
func consumer(visibility v1alpha1.Visibility, project string) field.ErrorList {
	if visibility != v1alpha1.VisibilityConsumer || project != "" {
		return nil
	}
	return field.ErrorList{field.Required(field.NewPath("spec", "project"), "visibility Consumer needs a project: say whose claims may use it")}
}

// familyOr6 bounds lengths where the family is not known yet.
func familyOr6(f ipam.Family) ipam.Family {
	if f == "" {
		return ipam.IPv6
	}
	return f
}

func orDefault[T ~string](value, otherwise T) T {
	if value == "" {
		return otherwise
	}
	return value
}
