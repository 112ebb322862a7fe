package ippool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/authorize"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// read reads the pool's spec.
func (c *Controller) read(s *scope) error {
	pool, errs := c.Catalog.ReadPool(s.obj)
	s.pool = pool
	return convert.PolicyError(errs)
}

// secure ensures that the pool's own CIDR is recorded, and that the record carries the pool's UID.
func (c *Controller) secure(ctx context.Context, s *scope) error {
	parts, err := c.parts(s)
	for _, s.part = range parts {
		if err := c.securePart(ctx, s); err != nil {
			return err
		}
	}
	if len(parts) == 0 { // one of the others may wait for what the pool had before an edit
		return cmp.Or(c.releaseFormer(ctx, s, c.Allocator.Release), err)
	}
	if err := c.ensureFinalizer(ctx, s); err != nil {
		return err
	}
	return c.releaseFormer(ctx, s, c.Allocator.ReleaseFormer, parts...)
}

// securePart ensures that one of the pool's own records exists, and carries the pool's UID.
func (c *Controller) securePart(ctx context.Context, s *scope) error {
	state := c.Catalog.PoolState(s.part)
	s.record, s.open = state.Record, state.Open && s.pool.Occupied != nil
	switch {
	case state.Rival != nil:
		lost := c.Allocator.CheckConfirmed(state.Record)
		if !s.open {
			return lost
		}
		s.retry = recheck
		if err := c.Allocator.ReleaseFormer(ctx, state.Record); err != nil && !errors.Is(err, ipam.ErrPoolInUse) {
			return fmt.Errorf("giving up what another holder has: %w", err)
		}
		return lost
	case !state.Recorded || !state.Record.MayBeOf(string(s.obj.GetUID())):
		if err := c.carveOrYield(ctx, s); err != nil {
			return err
		}
		return c.writeSpec(ctx, s, s.record)
	case !state.Record.IsStamped():
		_, err := c.Allocator.Stamp(ctx, state.Record, s.obj)
		return err
	}
	return nil
}

// recheck is the time after which a pool that occupies its ranges is tried again: it is in no queue.
const recheck = 5 * time.Second

// carveOrYield records what the pool holds. A pool without turn in the queue for its parent leaves
// it to others.
func (c *Controller) carveOrYield(ctx context.Context, s *scope) error {
	if s.pool.Occupied == nil {
		err := c.carve(ctx, s)
		s.retry, err = c.Queue.Yield(convert.HolderOfPool(s.pool.Key), err)
		return err
	}
	err := c.takeOverFormer(ctx, s)
	if err == nil {
		err = c.carve(ctx, s)
	}
	if err != nil {
		s.retry = recheck
	}
	return err
}

// takeOverFormer makes the pool the holder of every own record of its name: one that its create made,
// and whose ranges were edited since, or one of an earlier pool. Only then is that no rival of the
// record to be made, and is released after it.
func (c *Controller) takeOverFormer(ctx context.Context, s *scope) (err error) {
	uid := string(s.obj.GetUID())
	for _, record := range c.Ledger.HeldBy(convert.HolderOfPool(s.pool.Key)) {
		switch {
		case record.Pool != s.pool.Home || record.HolderUID == uid:
			continue
		case !record.IsStamped() && slices.Equal(record.Blocks(), s.part.Blocks()):
			continue
		case record.IsStamped():
			_, err = c.Allocator.TakeOver(ctx, record, uid)
		default:
			_, err = c.Allocator.Stamp(ctx, record, s.obj)
		}
		return cmp.Or(err, ipam.ErrUnconfirmed) // until the view shows it
	}
	return nil
}

// releaseFormer releases the own records that the pool had before it was edited, once no block of the pool
// needs them. What only they have is withheld already.
func (c *Controller) releaseFormer(ctx context.Context, s *scope, release func(context.Context, ipam.Record) error, parts ...ipam.Pool) error {
	state := c.Catalog.PoolState(s.pool)
	if s.pool.Key.Kind.IsInCluster() && state.Record.HolderUID == s.pool.Spec.UID { // no part if others have some of it
		state.Former = append(state.Former, state.Record)
	}
	for _, former := range state.Former {
		isPart := func(part ipam.Pool) bool {
			return part.Home == former.Pool && slices.Equal(part.Blocks(), former.Blocks())
		}
		if slices.ContainsFunc(parts, isPart) {
			continue
		}
		if c.Ledger.IsLeaving(former.Name) && !former.Terminating {
			continue // it is deleted, and the view does not show that yet
		}
		err := release(ctx, former)
		if errors.Is(err, ipam.ErrPoolInUse) {
			s.former++
			s.retry = recheck
			continue
		}
		if err != nil {
			return fmt.Errorf("releasing what the pool held before: %w", err)
		}
		c.Ledger.MarkLeaving(former.Name)
		c.Allocator.History.Released(former, history.Edited)
	}
	return nil
}

// ensureFinalizer adds the finalizer again if it was removed from a pool: without it, deleting the
// pool would not wait for its blocks. It leaves a paused pool unchanged: its finalizer may have
// been removed because the operator is being uninstalled.
func (c *Controller) ensureFinalizer(ctx context.Context, s *scope) error {
	before := copyOf(s.obj)
	if s.pool.Paused || !controllerutil.AddFinalizer(s.obj, convert.PoolFinalizer(s.obj.PoolKind())) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Client.Patch(ctx, s.obj, patch); err != nil {
		return kubeutil.IgnoreNotFound(fmt.Errorf("putting the finalizer back: %w", err))
	}
	return nil
}

// carve records the CIDR of a pool if admission could not: the parent was missing or full, or the
// record is lost.
func (c *Controller) carve(ctx context.Context, s *scope) error {
	if err := c.requestGrant(ctx, s); err != nil {
		return err
	}
	order, err := c.Allocator.PoolOrder(s.part)
	if err != nil {
		return err
	}
	order.SetHolder(s.obj)
	order.Waiting = queue.WaiterOfPool(s.part, s.obj.GetCreationTimestamp().Time)
	record, err := c.Allocator.Allocate(ctx, order)
	if err != nil {
		return fmt.Errorf("recording the pool's CIDR: %w", err)
	}
	s.record = record
	return nil
}

// requestGrant asks whether the service account that created a child pool can use its parent now.
func (c *Controller) requestGrant(ctx context.Context, s *scope) (err error) {
	if !s.part.IsChild() {
		return nil
	}
	if parent, ok := c.Catalog.MayBeGranted(s.part.ParentRequest()); ok {
		s.part.ParentGrant, s.grantRetry, err = c.Asker.Ask(ctx, s.obj, parent)
	}
	return err
}

// writeSpec writes the recorded block, its family and the finalizer into the pool, if the pool is
// still as it was read. The spec of a pool of the in-cluster provider has none of it.
func (c *Controller) writeSpec(ctx context.Context, s *scope, record ipam.Record) error {
	if s.pool.Key.Kind.IsInCluster() {
		return nil
	}
	before, spec := copyOf(s.obj), s.obj.PoolSpec()
	if s.pool.Occupied == nil {
		spec.CIDR = record.Block.String()
	}
	spec.IPFamily = v1alpha1.IPFamily(ipam.FamilyOf(record.Block))
	isAdded := controllerutil.AddFinalizer(s.obj, v1alpha1.FinalizerPool)
	if equality.Semantic.DeepEqual(before.PoolSpec(), spec) && !isAdded {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Client.Patch(ctx, s.obj, authorize.WithoutRequester(s.obj, patch)); err != nil {
		return fmt.Errorf("writing %s into the pool: %w", record.Block, err)
	}
	return c.read(s)
}

// removeFinalizer removes the finalizer of a pool that is being deleted, once its last block is
// released: from then on its own record is marked, and no other block is confirmed. The
// record is deleted when the pool is gone.
func (c *Controller) removeFinalizer(ctx context.Context, s *scope) error {
	s.record = c.Catalog.PoolState(s.pool).Record
	if !controllerutil.ContainsFinalizer(s.obj, convert.PoolFinalizer(s.obj.PoolKind())) {
		return nil
	}
	inUse, err := c.closePool(ctx, s)
	if inUse || err != nil {
		return err
	}
	before := copyOf(s.obj)
	controllerutil.RemoveFinalizer(s.obj, convert.PoolFinalizer(s.obj.PoolKind()))
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Client.Patch(ctx, s.obj, patch); err != nil {
		return kubeutil.IgnoreNotFound(fmt.Errorf("removing the finalizer of the pool: %w", err))
	}
	return nil
}

// parkIfRefused converts an error by which the API server refuses to change the pool into one that the
// status of the pool reports. It returns any other error unchanged.
func parkIfRefused(err error) error {
	if err == nil || !queue.IsRefused(err) {
		return err
	}
	return &ipam.ParkedError{Reason: v1alpha1.ReasonRecordRefused, Message: kubeutil.StableText(err) + ": remove the cause; it is tried again by itself", Cause: err}
}

// closePool stops the pool from handing out blocks, and reports whether blocks of it are in use. If
// blocks are in use, it leaves the pool unchanged.
func (c *Controller) closePool(ctx context.Context, s *scope) (inUse bool, err error) {
	if c.Ledger.Records(s.pool.Key) > 0 {
		return true, nil
	}
	state := c.Catalog.PoolState(s.pool)
	for _, own := range append(state.Former, state.Record) {
		if own.UID == "" {
			continue
		}
		switch _, err := c.Allocator.MarkReleasing(ctx, own); {
		case errors.Is(err, ipam.ErrPoolInUse):
			return true, nil
		case err != nil && !kubeutil.IsNotFound(err):
			return false, err
		}
	}
	return false, nil
}
