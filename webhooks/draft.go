package webhooks

import (
	"encoding/json"
	"errors"
	"net/http"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// draft is an object as it was sent, with what is filled in. It is edited as it
// stands, not by way of our types, so that nothing a client sent is dropped.
type draft struct {
	raw    []byte
	object map[string]any
}

func newDraft(raw []byte) (*draft, error) {
	d := &draft{raw: raw}
	if err := json.Unmarshal(raw, &d.object); err != nil {
		return nil, err
	}
	if d.object == nil {
		return nil, errors.New("the object is null")
	}
	return d, nil
}

// set fills in a field; the empty string and nil are left out.
func (d *draft) set(value any, path ...string) error {
	if value == nil || value == "" {
		return nil
	}
	return unstructured.SetNestedField(d.object, value, path...)
}

// text is a field that is a string, else empty.
func (d *draft) text(path ...string) string {
	text, _, _ := unstructured.NestedString(d.object, path...)
	return text
}

// remove takes a field out.
func (d *draft) remove(path ...string) { unstructured.RemoveNestedField(d.object, path...) }

// grant notes, for when the object has to wait, that its maker may use a pool;
// what the object itself says of that is taken out.
func (d *draft) grant(pool *v1alpha1.PoolReference, granted bool) {
	d.remove("metadata", "annotations", v1alpha1.AnnotationUseGranted)
	if granted && pool != nil {
		_ = d.set(pool.Name, "metadata", "annotations", v1alpha1.AnnotationUseGranted) // metadata is a map: the API server has read it
	}
}

// keep fills in a field of spec from an older object where it was left out.
func (d *draft) keep(old map[string]any, name string) error {
	if _, found, _ := unstructured.NestedFieldNoCopy(d.object, "spec", name); found {
		return nil
	}
	value, _, err := unstructured.NestedFieldCopy(old, "spec", name)
	if err != nil {
		return err
	}
	return d.set(value, "spec", name)
}

// response is the patch from what was sent to what was filled in.
func (d *draft) response(warnings ...string) admission.Response {
	edited, err := json.Marshal(d.object)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(d.raw, edited).WithWarnings(warnings...)
}
