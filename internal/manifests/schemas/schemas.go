// Package schemas validates objects by the schemas of the CRDs, as the API server will.
package schemas

import (
	"fmt"
	"io/fs"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/config"
)

// Schemas validates objects as the API server will once they are admitted: if it would refuse
// an object then, the object must not be recorded now. The CEL rules, which cost more, are left
// to the API server; package adapt states the same for created objects.
type Schemas map[string]kindSchema

type kindSchema struct {
	validator  validation.SchemaValidator
	structural *schema.Structural
}

// Read reads the schemas that the CRDs carry, by kind.
func Read() (Schemas, error) {
	all := Schemas{}
	files, err := fs.Glob(config.CRDs, "crd/bases/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		data, err := config.CRDs.ReadFile(file)
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

// Errors returns the errors for which the API server will refuse an object.
func (s Schemas) Errors(kind string, object map[string]any) field.ErrorList {
	errs := validation.ValidateCustomResource(nil, object, s[kind].validator)
	return append(errs, listtype.ValidateListSetsAndMaps(nil, s[kind].structural, object)...)
}
