package envtest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// late implements an API server that applies installed objects later: the first request of each
// kind shows that none is in force yet.
type late struct{ requests []string }

// isRepeated notes a request, and reports whether it was made before.
func (l *late) isRepeated(request string) bool {
	l.requests = append(l.requests, request)
	return len(l.requests) > 1 && l.requests[len(l.requests)-2] == request
}

func (l *late) create(_ context.Context, _ client.WithWatch, obj client.Object, options ...client.CreateOption) error {
	request := "create"
	if len(options) > 0 {
		request = "create dry"
	}
	if l.isRepeated(request) {
		obj.(*v1alpha1.IPClaim).Status.Phase = v1alpha1.ClaimPending
	}
	return nil
}

func (l *late) patch(_ context.Context, _ client.WithWatch, obj client.Object, change client.Patch, options ...client.PatchOption) error {
	body, err := change.Data(obj)
	switch retains := strings.Contains(string(body), "Retain"); {
	case err != nil || len(options) == 0:
		return errors.Join(err, errors.New("is no dry run"))
	case retains && l.isRepeated("retain"):
		return apierrors.NewInvalid(schema.GroupKind{Kind: "IPClaim"}, obj.GetName(), nil)
	case !retains && l.isRepeated("annotate"):
		return apierrors.NewForbidden(schema.GroupResource{Resource: "ipclaims"}, obj.GetName(), nil)
	}
	return nil
}

func (l *late) delete(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
	l.requests = append(l.requests, "delete")
	return nil
}

func (l *late) plane(t *testing.T) *plane {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(scheme))
	return &plane{k8s: fake.NewClientBuilder().WithScheme(scheme).
		WithInterceptorFuncs(interceptor.Funcs{Create: l.create, Patch: l.patch, Delete: l.delete}).Build()}
}

func TestStartWaitsUntilConfigurationIsEffective(t *testing.T) {
	server := &late{}
	ready := make(chan struct{})
	close(ready)
	must(t, server.plane(t).await(t.Context(), ready))
	want := []string{"create dry", "create dry", "create", "retain", "retain", "annotate", "annotate", "delete"}
	if diff := cmp.Diff(want, server.requests); diff != "" {
		t.Errorf("Start has asked for something else:\n%s", diff)
	}
}

func TestStartSendsNoRequestBeforeOperatorIsReady(t *testing.T) {
	server := &late{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := server.plane(t).await(ctx, make(chan struct{}))
	if !errors.Is(err, context.Canceled) || len(server.requests) > 0 {
		t.Errorf("%v, after %q", err, server.requests)
	}
}
