package webhooks

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/internal/manifests/schemas"
)

// unreadable answers an object that cannot be decoded: with the errors of the schema, which name
// the field, or else with the error of the decoder.
func unreadable(s schemas.Schemas, kind string, d *draft, cause error) admission.Response {
	if errs := append(s.Errors(kind, d.object), durations(d)...); len(errs) > 0 {
		name, _, _ := unstructured.NestedString(d.object, "metadata", "name")
		return denied(subject{kind: kind, name: name}.invalid(errs...))
	}
	return admission.Errored(http.StatusBadRequest, cause)
}

// durations refuses times that cannot be read. To a schema they are strings.
func durations(d *draft) field.ErrorList {
	var errs field.ErrorList
	for _, name := range []string{"reuseDelay", "retentionPeriod"} {
		text, stated, _ := unstructured.NestedString(d.object, "spec", name)
		if _, err := time.ParseDuration(text); err != nil && stated {
			errs = append(errs, field.Invalid(field.NewPath("spec", name), text, "is not a duration: write one such as 90s or 36h"))
		}
	}
	return errs
}
