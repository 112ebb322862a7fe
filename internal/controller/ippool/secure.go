package ippool

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/absent"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// read reads the pool's spec.
func read(s *scope) error {
	pool, errs := adapt.Pool(s.obj)
	s.pool = pool
	if len(errs) > 0 {
		return &ipam.PolicyError{Field: errs[0].Field, Value: errs[0].BadValue, Remedy: errs[0].Detail}
	}
	return nil
}

// secure sees to it that the pool's own CIDR is recorded, and that the record
// carries the pool's UID.
func (c *Controller) secure(ctx context.Context, s *scope) error {
	state := c.Allocator.PoolState(s.pool)
	s.record = state.Record
	switch {
	case state.Rival != nil:
		return &ipam.TakenError{Block: s.pool.CIDR, Pool: s.pool.Home, Holder: state.Rival.Holder, Overlap: state.Rival.Block}
	case state.Record.UID == "" || !sameHolder(state.Record.HolderUID, string(s.obj.GetUID())):
		return c.carve(ctx, s)
	case state.Record.HolderUID == "":
		_, err := c.Allocator.Stamp(ctx, state.Record, s.obj)
		return err
	}
	return nil
}

// sameHolder compares UIDs, of which a record that was made before its pool has
// none.
func sameHolder(recorded, actual string) bool { return recorded == "" || recorded == actual }

// carve records the CIDR of a pool for which admission could not: its parent
// was missing or full, or its record is lost.
func (c *Controller) carve(ctx context.Context, s *scope) error {
	order, err := c.Allocator.PoolOrder(s.pool, string(s.obj.GetUID()), "")
	if err != nil {
		return err
	}
	order.Waiting = allocator.PoolWaiting(s.pool, s.obj.GetCreationTimestamp().Time)
	record, err := c.Allocator.Carve(ctx, order)
	if err != nil {
		return fmt.Errorf("recording the pool's CIDR: %w", err)
	}
	s.record = record
	return c.writeIn(ctx, s, record)
}

// writeIn fills in what the pool was given, and the finalizer, if the pool is
// still as it was read.
func (c *Controller) writeIn(ctx context.Context, s *scope, record ipam.Record) error {
	before, spec := copyOf(s.obj), s.obj.PoolSpec()
	spec.CIDR = record.Block.String()
	spec.IPFamily = v1alpha1.IPFamily(ipam.FamilyOf(record.Block))
	added := controllerutil.AddFinalizer(s.obj, v1alpha1.FinalizerPool)
	if was := before.PoolSpec(); was.CIDR == spec.CIDR && was.IPFamily == spec.IPFamily && !added {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Client.Patch(ctx, s.obj, patch); err != nil {
		return fmt.Errorf("writing %s into the pool: %w", record.Block, err)
	}
	return read(s)
}

// letGo takes the finalizer off a pool that is being deleted, once its last
// block is released. Its own record is settled when the pool is gone.
func (c *Controller) letGo(ctx context.Context, s *scope) error {
	s.record = c.Allocator.PoolState(s.pool).Record
	if c.Allocator.Ledger().Records(s.pool.Key) > 0 {
		return nil
	}
	before := copyOf(s.obj)
	if !controllerutil.RemoveFinalizer(s.obj, v1alpha1.FinalizerPool) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Client.Patch(ctx, s.obj, patch); err != nil {
		return absent.Ignore(fmt.Errorf("letting go of the pool: %w", err))
	}
	return nil
}
