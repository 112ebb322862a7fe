package suite

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// Retained deletes an IPClaim, and waits until its block is retained.
func (w *World) Retained(namespace, name string) {
	w.Helper()
	claim, record := &v1alpha1.IPClaim{}, &v1alpha1.IPAllocation{}
	Must(w, w.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: name}, claim))
	w.Deleted(claim)
	w.Await(name+" is retained", func(ctx context.Context) bool {
		return w.Get(ctx, client.ObjectKey{Namespace: namespace, Name: claim.Spec.AllocationName}, record) == nil && record.Spec.State == v1alpha1.AllocationRetained
	})
}
