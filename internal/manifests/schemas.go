package manifests

import (
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Schemas validates objects as the API server will once they are admitted: if it would refuse
// an object then, the object must not be recorded now. The CEL rules, which cost more, are left
// to the API server; package convert states the same for created objects.
type Schemas map[string]kindSchema

type kindSchema struct {
	validator  validation.SchemaValidator
	structural *schema.Structural
}

// NewSchemas returns the schemas of the CRDs, by kind.
func NewSchemas() Schemas {
	all := Schemas{}
	for _, definition := range Definitions() {
		kind := definition.Spec.Names.Kind
		s, err := newSchema(definition.Spec.Versions[0].Schema.OpenAPIV3Schema)
		if err != nil {
			panic(fmt.Sprintf("the schema of %s: %v", kind, err))
		}
		all[kind] = s
	}
	return all
}

func newSchema(stated *apiextensionsv1.JSONSchemaProps) (kindSchema, error) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(stated, internal, nil); err != nil {
		return kindSchema{}, err
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		return kindSchema{}, err
	}
	structural, err := schema.NewStructural(internal)
	return kindSchema{validator: validator, structural: structural}, err
}

// Errors returns the errors for which the API server will refuse an object.
func (s Schemas) Errors(kind string, object map[string]any) field.ErrorList {
	errs := validation.ValidateCustomResource(nil, object, s[kind].validator)
	return append(errs, listtype.ValidateListSetsAndMaps(nil, s[kind].structural, object)...)
}
