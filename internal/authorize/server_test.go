package authorize

import (
	"context"
	"errors"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

var errDown = errors.New("the API server is down")

// server represents an API server that keeps objects and answers reviews of access.
type server struct {
	client.WithWatch
	// allowed is the answer to a review. Calls fail while their error is set.
	allowed             bool
	reviewErr, patchErr error
	reviews             []authorizationv1.SubjectAccessReviewSpec
}

func newServer(t *testing.T) *server {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	s := &server{}
	s.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, to client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if s.patchErr != nil {
				return s.patchErr
			}
			return to.Patch(ctx, obj, patch, opts...)
		},
		Create: func(ctx context.Context, to client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			review, ok := obj.(*authorizationv1.SubjectAccessReview)
			if !ok {
				return to.Create(ctx, obj, opts...)
			}
			s.reviews = append(s.reviews, review.Spec)
			review.Status.Allowed = s.allowed
			return s.reviewErr
		},
	}).Build()
	return s
}

// stored returns the claim as the server has it.
func (s *server) stored(t *testing.T, claim *v1alpha1.IPClaim) *v1alpha1.IPClaim {
	t.Helper()
	stored := &v1alpha1.IPClaim{}
	if err := s.Get(t.Context(), client.ObjectKeyFromObject(claim), stored); err != nil {
		t.Fatal(err)
	}
	return stored
}
