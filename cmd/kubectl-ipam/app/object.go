package app

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// object is an API object as a report: a program gets the object itself.
type object struct {
	client.Object
	kind schema.GroupVersionKind
	// rows is the object for people.
	rows func(wide bool) *table
	// asManifest leaves out what a manifest has not.
	asManifest bool
}

func newObject(obj client.Object, rows func(wide bool) *table) (*object, error) {
	kind, err := apiutil.GVKForObject(obj, scheme())
	if err != nil {
		return nil, err
	}
	return &object{Object: obj, kind: kind, rows: rows}, nil
}

// outcome is an object of which is said what was done with it.
func outcome(obj client.Object, done string) (*object, error) {
	o, err := newObject(obj, nil)
	if err != nil {
		return nil, err
	}
	o.rows = func(bool) *table { return &table{rows: [][]cell{{text("%s %s", o.names()[0], done)}}} }
	return o, nil
}

func (o *object) table(wide bool) *table { return o.rows(wide) }

func (o *object) names() []string {
	return []string{fmt.Sprintf("%s.%s/%s", strings.ToLower(o.kind.Kind), o.kind.Group, o.GetName())}
}

// MarshalJSON implements json.Marshaler.
func (o *object) MarshalJSON() ([]byte, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.Object)
	if err != nil {
		return nil, err
	}
	content["apiVersion"], content["kind"] = o.kind.GroupVersion().String(), o.kind.Kind
	if o.asManifest {
		delete(content, "status")
	}
	return json.Marshal(content)
}
