package operator

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// TestRemovalPolicyListsEveryFinalizer compares the policy with the removed finalizers.
func TestRemovalPolicyListsEveryFinalizer(t *testing.T) {
	for _, p := range protections() {
		if !strings.Contains(removal, "'"+p.finalizer+"'") {
			t.Errorf("%s, of kind %s, could be put back", p.finalizer, p.kind.Kind)
		}
	}
	if !strings.Contains(removal, `"`+removalMessage) {
		t.Errorf("the policy does not contain %q", removalMessage)
	}
}

// TestConcurrentlyChangedObjectLosesFinalizerInLaterPass changes a record before each attempt of the
// first passes, as an operator does that has no right to make an IPAddress.
func TestConcurrentlyChangedObjectLosesFinalizerInLaterPass(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	record := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "machine", Finalizers: []string{v1alpha1.FinalizerHeld, "others"}}}
	conflicts := 5
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(record).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, options ...client.PatchOption) error {
			if conflicts > 0 {
				conflicts--
				return apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "ipallocations"}, obj.GetName(), nil)
			}
			return c.Patch(ctx, obj, patch, options...)
		},
	}).Build()

	for pass, want := range []int{1, 1, 1, 1, 1, 1, 0} {
		if removed, err := protections()[0].remove(t.Context(), c); removed != want || err != nil {
			t.Fatalf("pass %d has found %d finalizers, %v; want %d", pass, removed, err, want)
		}
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(record), record); err != nil {
		t.Fatal(err)
	}
	if got := record.Finalizers; len(got) != 1 || got[0] != "others" {
		t.Errorf("the record has the finalizers %q", got)
	}
}
