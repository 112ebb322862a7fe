package webhooks

import (
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/config/crd"
)

// schemas validate objects as the API server will once they are admitted: what
// it would refuse then must not be recorded now. The CEL rules, which cost more,
// are left to it; package adapt says the same of what is created.
type schemas map[string]kindSchema

type kindSchema struct {
	validator  validation.SchemaValidator
	structural *schema.Structural
}

// newSchemas reads the schemas that the CRDs carry, by kind.
func newSchemas() (schemas, error) {
	all := schemas{}
	files, err := fs.Glob(crd.Bases, "bases/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		data, err := crd.Bases.ReadFile(file)
		if err != nil {
			return nil, err
		}
		kind, s, err := schemaOf(data)
		if err != nil {
			return nil, fmt.Errorf("reading the schema in %s: %w", file, err)
		}
		all[kind] = s
	}
	return all, nil
}

func schemaOf(manifest []byte) (string, kindSchema, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(manifest, definition); err != nil {
		return "", kindSchema{}, err
	}
	internal := &apiextensions.JSONSchemaProps{}
	stated := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(stated, internal, nil); err != nil {
		return "", kindSchema{}, err
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		return "", kindSchema{}, err
	}
	structural, err := schema.NewStructural(internal)
	return definition.Spec.Names.Kind, kindSchema{validator: validator, structural: structural}, err
}

// errors are what the API server will refuse of an object.
func (s schemas) errors(kind string, object map[string]any) field.ErrorList {
	errs := validation.ValidateCustomResource(nil, object, s[kind].validator)
	return append(errs, listtype.ValidateListSetsAndMaps(nil, s[kind].structural, object)...)
}

// unreadable answers what cannot be decoded: by the schema, which names the
// field, or else by what the decoder says.
func (s schemas) unreadable(kind string, d *draft, cause error) admission.Response {
	if errs := append(s.errors(kind, d.object), durations(d)...); len(errs) > 0 {
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
