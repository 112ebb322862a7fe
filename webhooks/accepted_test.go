package webhooks

import (
	"io/fs"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/config"
)

// TestAPIServerAcceptsCRDs fails, among other things, if the CEL rules of a schema could cost
// more than the API server allows.
func TestAPIServerAcceptsCRDs(t *testing.T) {
	files, err := fs.Glob(config.CRDs, "crd/bases/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no CRDs", err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			data, err := config.CRDs.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			definition, internal := &apiextensionsv1.CustomResourceDefinition{}, &apiextensions.CustomResourceDefinition{}
			if err := yaml.UnmarshalStrict(data, definition); err != nil {
				t.Fatal(err)
			}
			apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(definition)
			if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(definition, internal, nil); err != nil {
				t.Fatal(err)
			}
			internal.Status.StoredVersions = []string{definition.Spec.Versions[0].Name}
			for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), internal) {
				t.Error(err)
			}
		})
	}
}
