// Package must ends a test at an error that the test is not about.
package must

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Succeed fails the test on an error.
func Succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// As converts an object to its Go type.
func As[T any](t testing.TB, obj *unstructured.Unstructured) *T {
	t.Helper()
	typed := new(T)
	Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, typed))
	return typed
}
