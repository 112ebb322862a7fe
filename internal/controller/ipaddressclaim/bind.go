package ipaddressclaim

import (
	"context"
	"errors"
	"fmt"

	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/requester"
)

// protectClaim puts our finalizer on a claim on which admission has not (contract,
// "Normal IPAddressClaim" 3). It is never called for one that is being deleted.
func (c *Controller) protectClaim(ctx context.Context, s *scope) error {
	before := s.claim.DeepCopy()
	if !controllerutil.AddFinalizer(s.claim, v1alpha1.FinalizerRelease) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Client.Patch(ctx, s.claim, patch); err != nil {
		return fmt.Errorf("adding the finalizer: %w", err)
	}
	return nil
}

// bind finds and records an address for a claim that has none (contract, "Normal
// IPAddressClaim" 4).
func (c *Controller) bind(ctx context.Context, s *scope) error {
	if err := c.isNew(ctx, s); err != nil {
		return err
	}
	if s.invalid != nil {
		return s.invalid
	}
	if err := c.protectClaim(ctx, s); err != nil {
		return err
	}
	if err := c.askAgain(ctx, s); err != nil {
		return err
	}
	resolution, err := c.Resolve(ctx, s.request)
	if err != nil {
		return err
	}
	order := s.order()
	order.Resolution = resolution
	s.record, err = c.Allocator.Allocate(ctx, order)
	return err
}

// askAgain asks whether who made the claim has the right to use its pool by now.
func (c *Controller) askAgain(ctx context.Context, s *scope) (err error) {
	if c.Catalogue.MayBeGranted(s.request) {
		s.request.Granted, s.again, err = c.Asker.Ask(ctx, s.claim, kind, s.request.Pool)
	}
	return err
}

// forgetRequester removes who made a claim that waits no more.
func (c *Controller) forgetRequester(ctx context.Context, s *scope) error {
	if s.claim.Annotations[v1alpha1.AnnotationRequester] == "" {
		return nil
	}
	patch := requester.Forget(client.MergeFromWithOptions(s.claim.DeepCopy(), client.MergeFromWithOptimisticLock{}))
	if err := c.Client.Patch(ctx, s.claim, patch); err != nil {
		return fmt.Errorf("removing who asked: %w", err)
	}
	return nil
}

// allocate binds a claim, and decides what it means for its turn that it cannot be.
func (c *Controller) allocate(ctx context.Context, s *scope) error {
	err := c.bind(ctx, s)
	switch {
	case errors.Is(err, errNotSeen), !s.mayWait():
		return err
	case err == nil: // nobody is to wait behind it, also where its IPAddress is refused
		c.Queue.Leave(s.holder())
		return nil
	}
	c.Queue.Wait(s.waiting())
	s.retry, err = c.Queue.Yield(s.holder(), err)
	return err
}

// isNew makes sure, where something is recorded for the claim or its status names
// an address, that the IPAddress is not merely missing in the cache.
func (c *Controller) isNew(ctx context.Context, s *scope) error {
	if s.claim.Status.AddressRef.Name == "" && len(c.Ledger.HeldBy(s.holder())) == 0 {
		return nil
	}
	err := c.Live.Get(ctx, client.ObjectKeyFromObject(s.claim), &ipamv1.IPAddress{})
	switch {
	case err == nil:
		return errNotSeen
	case kubeutil.IsNotFound(err):
		return nil
	}
	return fmt.Errorf("looking for IPAddress %s: %w", s.name, err)
}
