package authorize

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// WithoutRequester returns a merge patch of the object that also removes the encrypted creator
// which former versions kept in an annotation, if the object has it, and no other annotation. A
// cached object may lack annotations that the stored one has: if the last annotation that it
// knows were removed, the difference of two objects would remove them all.
func WithoutRequester(obj client.Object, merge client.Patch) client.Patch {
	if _, ok := obj.GetAnnotations()[v1alpha1.AnnotationRequester]; !ok {
		return merge
	}
	return withoutRequester{merge}
}

type withoutRequester struct{ client.Patch }

// Data implements client.Patch.
func (p withoutRequester) Data(obj client.Object) ([]byte, error) {
	data, err := p.Patch.Data(obj)
	if err != nil {
		return nil, err
	}
	changes := map[string]any{}
	if err := json.Unmarshal(data, &changes); err != nil {
		return nil, err
	}
	if err := unstructured.SetNestedField(changes, nil, "metadata", "annotations", v1alpha1.AnnotationRequester); err != nil {
		return nil, err
	}
	return json.Marshal(changes)
}
