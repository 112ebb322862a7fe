package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// readConfigurations comes before readSecret: whatever a configuration trusts, the
// Secret that is read then is as new as that, or newer.
func (c *Certs) readConfigurations(ctx context.Context, s *scope) error {
	for _, wanted := range []struct {
		name string
		into client.Object
	}{
		{c.options.MutatingWebhook, &admissionv1.MutatingWebhookConfiguration{}},
		{c.options.ValidatingWebhook, &admissionv1.ValidatingWebhookConfiguration{}},
	} {
		err := c.reader.Get(ctx, types.NamespacedName{Name: wanted.name}, wanted.into)
		switch {
		case apierrors.IsNotFound(err):
			s.missing = append(s.missing, wanted.name)
		case err != nil:
			return fmt.Errorf("reading %s: %w", wanted.name, err)
		default:
			s.configurations = append(s.configurations, wanted.into)
		}
	}
	return nil
}

// inject makes every webhook of the configurations trust the Secret's bundle.
func (c *Certs) inject(ctx context.Context, s *scope) error {
	bundle := encodeBundle(s.held.bundle)
	for _, configuration := range s.configurations {
		before, _ := configuration.DeepCopyObject().(client.Object)
		if !setBundle(configuration, bundle) {
			continue
		}
		patch := client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})
		err := c.writer.Patch(ctx, configuration, patch, fieldOwner)
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("%w for %s, which is gone", errWait, configuration.GetName())
		}
		if err != nil {
			return fmt.Errorf("injecting the bundle into %s: %w", configuration.GetName(), err)
		}
	}
	return nil
}

// setBundle reports whether that changes the configuration.
func setBundle(configuration client.Object, bundle []byte) bool {
	changed := false
	for _, webhook := range clientConfigs(configuration) {
		changed = changed || !bytes.Equal(webhook.CABundle, bundle)
		webhook.CABundle = bundle
	}
	return changed
}

// trusted are the certificates in the configurations' bundles.
func trusted(configurations []client.Object) []*x509.Certificate {
	var all []*x509.Certificate
	for _, configuration := range configurations {
		for _, webhook := range clientConfigs(configuration) {
			all = append(all, parseBundle(webhook.CABundle)...)
		}
	}
	return all
}

func clientConfigs(configuration client.Object) []*admissionv1.WebhookClientConfig {
	var configs []*admissionv1.WebhookClientConfig
	switch configuration := configuration.(type) {
	case *admissionv1.MutatingWebhookConfiguration:
		for i := range configuration.Webhooks {
			configs = append(configs, &configuration.Webhooks[i].ClientConfig)
		}
	case *admissionv1.ValidatingWebhookConfiguration:
		for i := range configuration.Webhooks {
			configs = append(configs, &configuration.Webhooks[i].ClientConfig)
		}
	}
	return configs
}
