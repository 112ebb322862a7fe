package command

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Object represents an API object as a report: a program gets the object itself.
type Object struct {
	client.Object
	kind schema.GroupVersionKind
	// Rows returns the object as a table for people.
	Rows func(wide bool) *Table
	// AsManifest leaves out the fields that a manifest does not have.
	AsManifest bool
}

// NewObject returns an object that is printed with these rows.
func NewObject(obj client.Object, rows func(wide bool) *Table) (*Object, error) {
	kind, err := apiutil.GVKForObject(obj, Scheme())
	if err != nil {
		return nil, err
	}
	return &Object{Object: obj, kind: kind, Rows: rows}, nil
}

// Outcome returns an object that is printed with the action that was done with it.
func Outcome(obj client.Object, done string) (*Object, error) {
	o, err := NewObject(obj, nil)
	if err != nil {
		return nil, err
	}
	o.Rows = func(bool) *Table { return &Table{Rows: [][]Cell{{Text("%s %s", o.Names()[0], done)}}} }
	return o, nil
}

// Table implements command.Report.
func (o *Object) Table(wide bool) *Table { return o.Rows(wide) }

// Names implements command.Report.
func (o *Object) Names() []string {
	return []string{fmt.Sprintf("%s.%s/%s", strings.ToLower(o.kind.Kind), o.kind.Group, o.GetName())}
}

// MarshalJSON implements json.Marshaler.
func (o *Object) MarshalJSON() ([]byte, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.Object)
	if err != nil {
		return nil, err
	}
	content["apiVersion"], content["kind"] = o.kind.GroupVersion().String(), o.kind.Kind
	if o.AsManifest {
		delete(content, "status")
	}
	return json.Marshal(content)
}
