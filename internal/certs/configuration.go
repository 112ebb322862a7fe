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
func (c *Certs) readConfigurations(ctx context.Context, s *scope) (err error) {
	s.configurations, s.missing, err = readConfigurations(ctx, c.reader, c.options.MutatingWebhook, c.options.ValidatingWebhook)
	return err
}

// readConfigurations returns the webhook configurations that exist, and the names
// of those that do not.
func readConfigurations(ctx context.Context, reader client.Reader, mutating, validating string) (found []client.Object, missing []string, err error) {
	for _, wanted := range []struct {
		name string
		into client.Object
	}{
		{mutating, &admissionv1.MutatingWebhookConfiguration{}},
		{validating, &admissionv1.ValidatingWebhookConfiguration{}},
	} {
		err := reader.Get(ctx, types.NamespacedName{Name: wanted.name}, wanted.into)
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, wanted.name)
		case err != nil:
			return nil, nil, fmt.Errorf("reading %s: %w", wanted.name, err)
		default:
			found = append(found, wanted.into)
		}
	}
	return found, missing, nil
}

// inject makes every webhook of the configurations trust the Secret's bundle.
func (c *Certs) inject(ctx context.Context, s *scope) error {
	bundle := encodeBundle(s.held.bundle)
	for _, configuration := range s.configurations {
		set := func() bool { return setBundle(configuration, bundle) }
		if err := changeConfiguration(ctx, c.writer, configuration, set, fieldOwner); err != nil {
			return err
		}
	}
	return nil
}

// changeConfiguration writes what change does to a configuration, unless that is
// nothing or another has written it meanwhile.
func changeConfiguration(ctx context.Context, writer client.Writer, configuration client.Object, change func() bool, owner client.FieldOwner) error {
	before, _ := configuration.DeepCopyObject().(client.Object)
	if !change() {
		return nil
	}
	patch := client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})
	err := writer.Patch(ctx, configuration, patch, owner)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w for %s, which is gone", errWait, configuration.GetName())
	}
	if err != nil {
		return fmt.Errorf("patching %s: %w", configuration.GetName(), err)
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
	each(configuration, func(_ string, config *admissionv1.WebhookClientConfig) { configs = append(configs, config) })
	return configs
}

// each calls do for every webhook of a configuration.
func each(configuration client.Object, do func(name string, config *admissionv1.WebhookClientConfig)) {
	switch configuration := configuration.(type) {
	case *admissionv1.MutatingWebhookConfiguration:
		for i := range configuration.Webhooks {
			do(configuration.Webhooks[i].Name, &configuration.Webhooks[i].ClientConfig)
		}
	case *admissionv1.ValidatingWebhookConfiguration:
		for i := range configuration.Webhooks {
			do(configuration.Webhooks[i].Name, &configuration.Webhooks[i].ClientConfig)
		}
	}
}
