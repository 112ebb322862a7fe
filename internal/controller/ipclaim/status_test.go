package ipclaim

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// TestClaimInTerminatingNamespaceIsNotRetried expects no log entry either.
func TestClaimInTerminatingNamespaceIsNotRetried(t *testing.T) {
	ending := apierrors.NewForbidden(schema.GroupResource{Resource: "ipallocations"}, "a", errors.New("the namespace is being terminated"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause, Field: "metadata.namespace"}}
	s := &scope{claim: &v1alpha1.IPClaim{}}
	outcome, retry := (&Controller{}).outcome(s, fmt.Errorf("binding: %w", ending))
	if retry != nil || outcome.Phase != "" {
		t.Errorf("got %v and %+v, want neither another try nor an outcome", retry, outcome)
	}
}
