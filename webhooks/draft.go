package webhooks

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// draft holds an object as it was sent, with the filled-in fields. It is edited as it is, not by
// way of our types, so that no field that a client sent is lost.
type draft struct {
	object map[string]any
	// changes has the edits, as the answer contains them (RFC 6902).
	changes []jsonpatch.JsonPatchOperation
}

func newDraft(raw []byte) (*draft, error) {
	d := &draft{}
	if err := json.Unmarshal(raw, &d.object); err != nil {
		return nil, err
	}
	if d.object == nil {
		return nil, errors.New("the object is null")
	}
	return d, nil
}

// set fills in a field, and the objects around it. It ignores the empty string and nil, and a
// string that the field has already.
func (d *draft) set(value any, path ...string) error {
	text, isText := value.(string)
	if value == nil || isText && (text == "" || text == d.text(path...)) {
		return nil
	}
	for i := 1; i < len(path); i++ {
		if parent, found, _ := unstructured.NestedFieldNoCopy(d.object, path[:i]...); !found || parent == nil {
			if err := d.add(map[string]any{}, path[:i]); err != nil {
				return err
			}
		}
	}
	return d.add(value, path)
}

func (d *draft) add(value any, path []string) error {
	if err := unstructured.SetNestedField(d.object, value, path...); err != nil {
		return err
	}
	d.changes = append(d.changes, jsonpatch.NewOperation("add", pointer(path), value))
	return nil
}

// pointer returns the JSON pointer of a path (RFC 6901).
func pointer(path []string) string {
	escaped := make([]string, len(path))
	for i, name := range path {
		escaped[i] = strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
	}
	return "/" + strings.Join(escaped, "/")
}

// addFinalizer adds a finalizer to the existing ones.
func (d *draft) addFinalizer(finalizers []string, finalizer string) error {
	if slices.Contains(finalizers, finalizer) {
		return nil
	}
	values := []any{}
	for _, f := range append(slices.Clone(finalizers), finalizer) {
		values = append(values, f)
	}
	return d.set(values, "metadata", "finalizers")
}

// text returns a field that is a string, or "".
func (d *draft) text(path ...string) string {
	text, _, _ := unstructured.NestedString(d.object, path...)
	return text
}

// remove removes a field.
func (d *draft) remove(path ...string) {
	if _, found, _ := unstructured.NestedFieldNoCopy(d.object, path...); !found {
		return
	}
	unstructured.RemoveNestedField(d.object, path...)
	d.changes = append(d.changes, jsonpatch.NewOperation("remove", pointer(path), nil))
}

// setGrant notes, in case the object must wait, that its creator can use a pool. It removes the
// object's own notes about that.
func (d *draft) setGrant(pool ipam.PoolKey, grant *ipam.Grant) {
	d.remove("metadata", "annotations", v1alpha1.AnnotationUseGranted)
	d.remove("metadata", "annotations", v1alpha1.AnnotationRequester)
	if grant != nil {
		_ = d.set(convert.GrantText(pool, *grant), "metadata", "annotations", v1alpha1.AnnotationUseGranted) // metadata is a map: the API server has read it
	}
}

// setRequestedBy notes in an object that waits the user that created it. It removes the object's own
// note about that.
func (d *draft) setRequestedBy(user string, isWaiting bool) {
	d.remove("metadata", "annotations", v1alpha1.AnnotationRequestedBy)
	if isWaiting {
		_ = d.set(convert.RequestedBy(user), "metadata", "annotations", v1alpha1.AnnotationRequestedBy) // metadata is a map: the API server has read it
	}
}

// restore restores fields of spec that were filled in, or are immutable, and that an update of an
// older object left out, so that an object can be replaced by the manifest it was created from.
func (d *draft) restore(old map[string]any, names ...string) error {
	for _, name := range names {
		if _, found, _ := unstructured.NestedFieldNoCopy(d.object, "spec", name); found {
			continue
		}
		value, _, err := unstructured.NestedFieldCopy(old, "spec", name)
		if err != nil {
			return err
		}
		if err := d.set(value, "spec", name); err != nil {
			return err
		}
	}
	return nil
}

// setStatus writes the status, whatever status the object had.
func (d *draft) setStatus(status v1alpha1.IPClaimStatus) {
	d.changes = append(d.changes, jsonpatch.NewOperation("add", "/status", status))
}

// putBack writes what an older object has over what an update states, or leaves out: fields that only the
// operator writes. An update can be of the object in another cluster, from which `clusterctl move`
// continues, or of a manifest that was exported before.
func (d *draft) putBack(old map[string]any, path ...string) error {
	was, found, _ := unstructured.NestedFieldNoCopy(old, path...)
	now, _, _ := unstructured.NestedFieldNoCopy(d.object, path...)
	if !found || reflect.DeepEqual(was, now) {
		return nil
	}
	return d.set(was, path...)
}

// restoreResponse returns the answer to an update: it restores the fields of spec of the older object, and
// puts back those of the operator, and its annotations about the creator of an object that waits.
func (d *draft) restoreResponse(oldText []byte, operatorFields [][]string, names ...string) admission.Response {
	operatorFields = append(slices.Clone(operatorFields),
		[]string{"metadata", "annotations", v1alpha1.AnnotationUseGranted}, []string{"metadata", "annotations", v1alpha1.AnnotationRequestedBy})
	old := map[string]any{}
	err := json.Unmarshal(oldText, &old)
	if err == nil {
		err = d.restore(old, names...)
	}
	for _, path := range operatorFields {
		if err == nil {
			err = d.putBack(old, path...)
		}
	}
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	return d.response()
}

// response returns the patch from the sent object to the filled-in one.
func (d *draft) response(warnings ...string) admission.Response {
	return admission.Patched("", d.changes...).WithWarnings(warnings...)
}
