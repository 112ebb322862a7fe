package kubeutil

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

func TestReplacementIsDeletionAndCreation(t *testing.T) {
	var notified []string
	h := SplitReplacements(handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ Queue) {
			notified = append(notified, "new "+string(e.Object.GetUID()))
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ Queue) {
			notified = append(notified, "changed "+string(e.ObjectNew.GetUID()))
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ Queue) {
			notified = append(notified, "gone "+string(e.Object.GetUID()))
		},
	})
	object := func(uid types.UID) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid}}
	}
	h.Update(t.Context(), event.UpdateEvent{ObjectOld: object("1"), ObjectNew: object("1")}, nil)
	h.Update(t.Context(), event.UpdateEvent{ObjectOld: object("1"), ObjectNew: object("2")}, nil)
	if want := []string{"changed 1", "gone 1", "new 2"}; !slices.Equal(notified, want) {
		t.Errorf("notified %q, want %q", notified, want)
	}
}
