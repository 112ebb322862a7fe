package kubeutil

import (
	"context"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// HasReadyEndpoints reports whether a Service has an endpoint that is ready. It returns the errors of the list.
func HasReadyEndpoints(ctx context.Context, reader client.Reader, service client.ObjectKey) (bool, error) {
	slices := &discoveryv1.EndpointSliceList{}
	if err := reader.List(ctx, slices, client.InNamespace(service.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service.Name}); err != nil {
		return false, err
	}
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			if ptr.Deref(endpoint.Conditions.Ready, true) {
				return true, nil
			}
		}
	}
	return false, nil
}
