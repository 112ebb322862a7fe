package certs

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func (c *Certs) readSecret(ctx context.Context, s *scope) error {
	secret := &corev1.Secret{}
	err := c.reader.Get(ctx, c.options.secret(), secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Secret %s: %w", c.options.secret(), err)
	}
	s.secret = secret
	s.held, s.unusable = parseHeld(secret.Data)
	return nil
}

// rotate writes to the Secret what it should hold.
func (c *Certs) rotate(ctx context.Context, s *scope) error {
	if s.secret == nil {
		return makeSecret(ctx, c.writer, c.options.secret(), fieldOwner)
	}
	next, news, err := s.held.next(s.now, c.options.names(), trusted(s.configurations))
	if err != nil {
		return fmt.Errorf("issuing: %w", err)
	}
	if news == "" {
		return nil
	}
	data, err := next.data()
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	if err := writeSecret(ctx, c.writer, s.secret, data, fieldOwner); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Wrote the Secret of the webhooks: "+news, "expires", next.serving.Leaf.NotAfter)
	s.held = next
	return nil
}

// makeSecret makes the Secret without anything in it. All replicas may do so at
// once; which of them fills it is decided by its resource version, in the pass
// that its creation starts. It is an apply because a right to create by POST
// cannot be limited to one name.
func makeSecret(ctx context.Context, writer client.Client, secret types.NamespacedName, owner client.FieldOwner) error {
	empty := applycorev1.Secret(secret.Name, secret.Namespace)
	if err := writer.Apply(ctx, empty, owner); err != nil {
		return fmt.Errorf("making Secret %s: %w", secret, err)
	}
	return fmt.Errorf("%w for Secret %s, which was just made", errWait, secret)
}

// writeSecret writes data into the Secret, unless another has written it meanwhile.
func writeSecret(ctx context.Context, writer client.Writer, secret *corev1.Secret, data map[string][]byte, owner client.FieldOwner) error {
	before := secret.DeepCopy()
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	maps.Copy(secret.Data, data)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := writer.Patch(ctx, secret, patch, owner); err != nil {
		return fmt.Errorf("writing Secret %s: %w", client.ObjectKeyFromObject(secret), err)
	}
	return nil
}
