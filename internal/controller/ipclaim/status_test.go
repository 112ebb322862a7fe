package ipclaim

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// TestAClaimOfANamespaceThatIsDeletedIsNotTriedAgain, nor told of in the log.
func TestAClaimOfANamespaceThatIsDeletedIsNotTriedAgain(t *testing.T) {
	ending := apierrors.NewForbidden(schema.GroupResource{Resource: "ipallocations"}, "a", errors.New("the namespace is being terminated"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause, Field: "metadata.namespace"}}
	s := &scope{claim: &v1alpha1.IPClaim{}}
	outcome, retry := (&Controller{}).outcome(s, fmt.Errorf("binding: %w", ending))
	if retry != nil || outcome.Phase != "" {
		t.Errorf("got %v and %+v, want neither another try nor an outcome", retry, outcome)
	}
}

// TestAConflictIsNotifiedOnceItIsWritten has a pass begin with a version of the claim that is
// not the newest: whoever wrote that has made the event.
func TestAConflictIsNotifiedOnceItIsWritten(t *testing.T) {
	newer := apierrors.NewConflict(schema.GroupResource{Resource: "ipclaims"}, "a", nil)
	for name, test := range map[string]struct {
		answer error
		want   int
	}{
		"it is the newest":         {nil, 1},
		"there is a newer version": {newer, 0},
	} {
		t.Run(name, func(t *testing.T) {
			claim, record := boundClaim()
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			there := fake.NewClientBuilder().WithScheme(scheme).WithObjects(claim).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
					return test.answer
				},
			}).Build()
			recorder := events.NewFakeRecorder(10)
			c := &Controller{Client: there, Live: there, Parts: allocatorWith(t, record, rivalOf(record)), events: recorder}
			if _, err := c.Reconcile(t.Context(), claim); err == nil {
				t.Error("it is not tried again")
			}
			if got := len(recorder.Events); got != test.want {
				t.Errorf("%d events, want %d", got, test.want)
			}
		})
	}
}
