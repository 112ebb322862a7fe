package envtest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/cadastre-dev/cadastre/config"
)

// installWebhooks installs the webhook configurations, by which the API server calls the
// webhooks at a port of this machine. The operator adds its certificate and the paths.
func (on *plane) installWebhooks(ctx context.Context, port int) error {
	// The API server resolves a Service of this type to its external name, and the port of
	// the webhook's client configuration. The certificate still has the name of the Service.
	leads := corev1ac.ServiceSpec().WithType(corev1.ServiceTypeExternalName).WithExternalName(loopback)
	if err := on.apply(ctx, corev1ac.Service(service, namespace).WithSpec(leads)); err != nil {
		return fmt.Errorf("installing the Service %s/%s: %w", namespace, service, err)
	}
	configurations, err := webhookConfigurations(port)
	if err != nil {
		return err
	}
	for _, configuration := range configurations {
		if err := on.applyObject(ctx, configuration); err != nil {
			return err
		}
	}
	return nil
}

// webhookConfigurations returns the generated configurations with the match conditions, as
// kustomize makes them, with the port at which the API server calls the webhooks.
func webhookConfigurations(port int) ([]map[string]any, error) {
	configurations, err := decode[map[string]any](config.Webhooks)
	if err != nil {
		return nil, fmt.Errorf("reading the webhooks' manifests: %w", err)
	}
	conditions, err := decode[map[string]any](config.MatchConditions)
	if err != nil {
		return nil, fmt.Errorf("reading the webhooks' match conditions: %w", err)
	}
	for i, configuration := range configurations {
		kind := configuration["kind"]
		index := slices.IndexFunc(conditions, func(patch map[string]any) bool { return patch["kind"] == kind })
		if index < 0 {
			return nil, fmt.Errorf("there are no match conditions for the %s", kind)
		}
		if configurations[i], err = merge(configuration, conditions[index]); err != nil {
			return nil, fmt.Errorf("adding the match conditions to the %s: %w", kind, err)
		}
		lead(configurations[i], port)
	}
	return configurations, nil
}

// merge merges a patch into a webhook configuration. The fields that matter here are alike in
// both kinds.
func merge(configuration, patch map[string]any) (map[string]any, error) {
	before, err := json.Marshal(configuration)
	if err != nil {
		return nil, err
	}
	change, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, change, admissionv1.ValidatingWebhookConfiguration{})
	if err != nil {
		return nil, err
	}
	merged := &unstructured.Unstructured{}
	err = merged.UnmarshalJSON(after)
	return merged.Object, err
}

// lead sets a port of the Service as the address of all webhooks of a configuration.
func lead(configuration map[string]any, port int) {
	webhooks, _ := configuration["webhooks"].([]any)
	for _, hook := range webhooks {
		hook.(map[string]any)["clientConfig"] = map[string]any{
			"service": map[string]any{"namespace": namespace, "name": service, "port": int64(port)},
		}
	}
}
