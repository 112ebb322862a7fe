package migrate

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// apply carries the plan out, from the point at which an earlier run has stopped.
func (r *run) apply(ctx context.Context) error {
	if err := r.resume(ctx); err != nil {
		return err
	}
	pl, err := r.read(ctx)
	if err != nil {
		return err
	}
	if err := r.print(pl); err != nil {
		return err
	}
	if len(pl.pools) == 0 {
		r.say("There is nothing to import.")
		return nil
	}
	if err := r.makePools(ctx, pl); err != nil {
		return err
	}
	if pl, err = r.drain(ctx); err != nil {
		return err
	}
	if err := r.verify(ctx, pl); err != nil {
		return err
	}
	if err := r.open(ctx, pl); err != nil {
		return err
	}
	r.say("Imported %s. What names the old pools, such as machine templates, has to name the new ones from now on; the old pools stay closed.", ipam.Counted(len(pl.pools), "pool"))
	return nil
}

// resume finishes the work of an interrupted run.
func (r *run) resume(ctx context.Context) error {
	journals, err := r.journals(ctx)
	if err != nil {
		return err
	}
	for _, j := range journals {
		r.say("Going on with %s of ConfigMap %s/%s.", ipam.Counted(len(j.entries), "claim"), j.object.Namespace, j.object.Name)
		if err := r.carryOut(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

// makePools creates the pools that do not exist yet. They are paused.
func (r *run) makePools(ctx context.Context, pl plan) error {
	for _, pp := range pl.pools {
		if pp.exists {
			continue
		}
		if err := r.client.Create(ctx, pp.pool.(client.Object)); err != nil {
			return fmt.Errorf("creating %s: %w", refOfPool(pp.pool), err)
		}
		r.say("Created %s, paused.", refOfPool(pp.pool))
	}
	return nil
}

// drain closes the other pools, and moves the claims and IPAddresses that name them until none
// is left.
func (r *run) drain(ctx context.Context) (plan, error) {
	for {
		pl, err := r.read(ctx)
		if err != nil {
			return pl, err
		}
		if n := pl.problems(); n > 0 {
			return pl, r.print(pl)
		}
		closed, err := r.closeAll(ctx, pl)
		if err != nil {
			return pl, err
		}
		if closed {
			if err := r.settle(ctx); err != nil {
				return pl, err
			}
			continue // the next round moves all that has been handed out until now
		}
		if pl.left() == 0 {
			return pl, nil
		}
		for _, pp := range pl.pools {
			if err := r.moveAll(ctx, pp.entries); err != nil {
				return pl, err
			}
			if n := len(pp.entries); n > 0 {
				r.say("Moved %s of %s.", ipam.Counted(n, "claim"), pp.ref)
			}
		}
		if err := r.settle(ctx); err != nil {
			return pl, err
		}
	}
}

// closeAll changes the pools of the other provider so that it hands out nothing of them any
// more. It reports whether any of them has changed.
func (r *run) closeAll(ctx context.Context, pl plan) (changed bool, err error) {
	for _, pp := range pl.pools {
		before := pp.obj.DeepCopy()
		closed, err := r.provider.close(pp.obj, pp.holdings)
		if err != nil {
			return changed, fmt.Errorf("closing %s: %w", pp.ref, err)
		}
		if !closed {
			continue
		}
		err = r.client.Patch(ctx, pp.obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		switch {
		case apierrors.IsConflict(err): // the next round reads it again
		case apierrors.IsInternalError(err):
			return changed, fmt.Errorf("closing %s: where the webhook of its provider does not answer, start the provider, or delete its webhook configurations, and run the import again: %w", pp.ref, err)
		case err != nil:
			return changed, fmt.Errorf("closing %s: %w", pp.ref, err)
		}
		changed = true
	}
	return changed, nil
}

// open lets our pools hand out addresses, and reserves in them the addresses that still stay
// with the other provider.
func (r *run) open(ctx context.Context, pl plan) error {
	for _, pp := range pl.pools {
		if err := onConflict(func() error { return r.openPool(ctx, pp) }); err != nil {
			return fmt.Errorf("opening %s: %w", refOfPool(pp.pool), err)
		}
	}
	return nil
}

func (r *run) openPool(ctx context.Context, pp *poolPlan) error {
	pool := pp.pool.DeepCopyObject().(v1alpha1.Pool)
	if err := r.client.Get(ctx, keyOf(pool), pool.(client.Object)); err != nil {
		return err
	}
	before := pool.DeepCopyObject().(client.Object)
	annotations := pool.GetAnnotations()
	isOpened := annotations[v1alpha1.AnnotationPaused] == pausedValue
	if isOpened {
		delete(annotations, v1alpha1.AnnotationPaused)
		pool.SetAnnotations(annotations)
	}
	pp.pool = pool
	if err := pp.reserveKept(); err != nil {
		return err
	}
	err := r.client.Patch(ctx, pool.(client.Object), client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return err
	}
	if isOpened {
		r.say("Opened %s: %s.", refOfPool(pool), pool.PoolSpec().CIDR)
	}
	if _, paused := pool.GetAnnotations()[v1alpha1.AnnotationPaused]; paused {
		r.say("%s stays paused.", refOfPool(pool))
	}
	return nil
}
