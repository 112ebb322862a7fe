package build

import (
	"strconv"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/testing"
)

// Tracker returns the storage of a fake client whose revisions rise with each write, as etcd's
// do. Without it each new object has revision 1, as in a store that has gone back.
func Tracker(scheme *runtime.Scheme) testing.ObjectTracker {
	t := &tracker{ObjectTracker: testing.NewFieldManagedObjectTracker(scheme,
		serializer.NewCodecFactory(scheme).UniversalDecoder(), managedfields.NewDeducedTypeConverter())}
	t.revision.Store(1000) // the fake client gives its first objects 999
	return t
}

type tracker struct {
	testing.ObjectTracker
	revision atomic.Int64
}

// Create implements testing.ObjectTracker.
func (t *tracker) Create(gvr schema.GroupVersionResource, obj runtime.Object, ns string, opts ...metav1.CreateOptions) error {
	if err := t.version(obj); err != nil {
		return err
	}
	return t.ObjectTracker.Create(gvr, obj, ns, opts...)
}

// Update implements testing.ObjectTracker.
func (t *tracker) Update(gvr schema.GroupVersionResource, obj runtime.Object, ns string, opts ...metav1.UpdateOptions) error {
	if err := t.version(obj); err != nil {
		return err
	}
	return t.ObjectTracker.Update(gvr, obj, ns, opts...)
}

// Patch implements testing.ObjectTracker.
func (t *tracker) Patch(gvr schema.GroupVersionResource, obj runtime.Object, ns string, opts ...metav1.PatchOptions) error {
	if err := t.version(obj); err != nil {
		return err
	}
	return t.ObjectTracker.Patch(gvr, obj, ns, opts...)
}

func (t *tracker) version(obj runtime.Object) error {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	accessor.SetResourceVersion(strconv.FormatInt(t.revision.Add(1), 10))
	return nil
}
