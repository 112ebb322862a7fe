package installation

import (
	"context"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// endpoints returns the endpoints of the provider's webhooks in a namespace.
func endpoints(namespace string, isReady bool) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "webhooks", Labels: map[string]string{discoveryv1.LabelServiceName: incluster.WebhookService}},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &isReady}}},
	}
}

func TestInClusterProviderIsJudged(t *testing.T) {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(incluster.AddToScheme(scheme))
	served := build.Served(build.InClusterPool("team", "served", 24, "10.0.0.10"), v1alpha1.ReasonReady)
	leased := build.Served(build.InClusterPool("team", "leased", 24, "10.0.0.11"), v1alpha1.ReasonProviderRunning)
	foreign := build.InClusterPool("team", "foreign", 24, "10.0.0.12")
	operator := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "cadastre", Labels: operatorLabels()}}
	operator.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{"--in-cluster-pools", "--in-cluster-provider-namespace=other"}}}
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
	for name, c := range map[string]struct {
		objects []client.Object
		refused client.ObjectList
		err     error
		result  Result
		says    string
	}{
		"no pools":                   {},
		"no CRDs":                    {refused: &incluster.InClusterIPPoolList{}, err: &meta.NoKindMatchError{}},
		"pools of the provider":      {objects: []client.Object{foreign}},
		"a lease":                    {objects: []client.Object{served, leased, foreign}, result: ResultWarning, says: "addresses of 2 pools, and Cadastre does not"},
		"endpoints":                  {objects: []client.Object{served, endpoints(incluster.DefaultNamespace, true)}, result: ResultWarning, says: "webhooks have endpoints"},
		"endpoints that are gone":    {objects: []client.Object{served, endpoints(incluster.DefaultNamespace, false)}, result: ResultOK, says: "does not run"},
		"absent":                     {objects: []client.Object{served, foreign}, result: ResultOK, says: "addresses of 1 pool, and the provider does not run"},
		"in another namespace":       {objects: []client.Object{served, operator, endpoints("other", true)}, result: ResultWarning, says: "Service other/"},
		"no right to list pools":     {refused: &incluster.InClusterIPPoolList{}, err: forbidden, result: ResultSkipped, says: "may not list inclusterippools"},
		"no right to list endpoints": {objects: []client.Object{served}, refused: &discoveryv1.EndpointSliceList{}, err: forbidden, result: ResultSkipped, says: "you may not list endpointslices"},
		"an error":                   {refused: &incluster.InClusterIPPoolList{}, err: errors.New("connection refused"), result: ResultFailed, says: "connection refused"},
	} {
		d := &Doctor{Operator: "system", Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(c.objects...).WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, reader client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if c.refused != nil && fmt.Sprintf("%T", list) == fmt.Sprintf("%T", c.refused) {
					return c.err
				}
				return reader.List(ctx, list, opts...)
			},
		}).Build()}
		checks := d.inClusterProvider(t.Context())
		switch {
		case c.result == "" && len(checks) > 0:
			t.Errorf("%s: got %+v, want no check", name, checks)
		case c.result != "" && len(checks) != 1:
			t.Errorf("%s: got %+v, want one check", name, checks)
		case c.result != "":
			expect(t, name, checks[0], c.result, c.says)
		}
	}
}
