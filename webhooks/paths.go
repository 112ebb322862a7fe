package webhooks

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/cadastre-dev/cadastre/config"
	"github.com/cadastre-dev/cadastre/internal/certs"
)

// Paths returns the paths of all webhooks, without the secret, as the markers state them.
func Paths() (certs.PlainPaths, error) {
	paths := certs.PlainPaths{Mutating: map[string]string{}, Validating: map[string]string{}}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(config.Webhooks), 4096)
	for {
		// The webhooks of both kinds have the fields that matter here in common.
		var configuration admissionv1.ValidatingWebhookConfiguration
		err := documents.Decode(&configuration)
		if errors.Is(err, io.EOF) {
			return paths, nil
		}
		if err != nil {
			return paths, fmt.Errorf("reading the webhooks' manifests: %w", err)
		}
		pathsByName := paths.Validating
		if configuration.Kind == "MutatingWebhookConfiguration" {
			pathsByName = paths.Mutating
		}
		for _, webhook := range configuration.Webhooks {
			pathsByName[webhook.Name] = *webhook.ClientConfig.Service.Path
		}
	}
}
