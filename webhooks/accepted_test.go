package webhooks

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"

	"github.com/cadastre-dev/cadastre/internal/manifests"
)

// TestAPIServerAcceptsCRDs fails, among other things, if the CEL rules of a schema could cost
// more than the API server allows.
func TestAPIServerAcceptsCRDs(t *testing.T) {
	for _, definition := range manifests.Definitions() {
		t.Run(definition.Name, func(t *testing.T) {
			internal := &apiextensions.CustomResourceDefinition{}
			apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(&definition)
			must(t, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&definition, internal, nil))
			internal.Status.StoredVersions = []string{definition.Spec.Versions[0].Name}
			for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), internal) {
				t.Error(err)
			}
		})
	}
}
