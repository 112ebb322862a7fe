package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// rollback gives everything back to Metal3, and deletes our pools.
func (r *run) rollback(ctx context.Context) error {
	if err := inOrder(ctx, r.resume, r.readReturning, r.printReturning); err != nil {
		return err
	}
	if len(r.plan.pools) == 0 {
		r.say("There is nothing to roll back.")
		return nil
	}
	if err := r.changePools(ctx, "pausing %s", beginPause); err != nil {
		return err
	}
	if err := inOrder(ctx, r.settle, r.readReturning); err != nil { // when every replica has seen that the pools are paused
		return err
	}
	if r.plan.problems() > 0 {
		return errors.Join(r.printReturning(ctx), r.changePools(ctx, "opening %s again", endPause))
	}
	for _, pp := range r.plan.pools {
		if err := r.giveBack(ctx, pp); err != nil {
			return err
		}
	}
	return nil
}

// giveBack moves the claims and IPAddresses that were imported from a pool back to it.
func (r *run) giveBack(ctx context.Context, pp *poolPlan) error {
	if err := r.moveAll(ctx, pp.entries); err != nil {
		return err
	}
	own := refOfPool(pp.pool)
	if err := r.awaitRelease(ctx, own); err != nil {
		return err
	}
	// Our pool is paused, and nothing of it is in use any more.
	if err := onConflict(func() error { return r.reopen(ctx, pp) }); err != nil {
		return fmt.Errorf("opening %s: %w", pp.ref, err)
	}
	if err := client.IgnoreNotFound(r.client.Delete(ctx, pp.pool)); err != nil {
		return fmt.Errorf("deleting %s: %w", own, err)
	}
	if err := r.awaitDeletion(ctx, pp.pool); err != nil {
		return err
	}
	r.say("Gave %s back to %s, and deleted %s.", ipam.FormatCount(len(pp.entries), "claim"), pp.ref, own)
	return nil
}

// awaitRelease waits until a pool has no IPAllocations.
func (r *run) awaitRelease(ctx context.Context, pool ipam.Holder) error {
	return r.await(ctx, releasedByOperator, func() ([]string, error) {
		records, err := r.records(ctx, map[ipam.Holder]bool{pool: true})
		names := make([]string, len(records))
		for i := range records {
			names[i] = "IPAllocation " + keyOf(&records[i]).String()
		}
		slices.Sort(names)
		return names, err
	})
}

// awaitDeletion waits until a pool that an import has made does not exist any more.
func (r *run) awaitDeletion(ctx context.Context, pool v1alpha1.Pool) error {
	now := pool.DeepCopyObject().(client.Object)
	return r.await(ctx, "deleted, as the operator still has a finalizer on it: see that it is running", func() ([]string, error) {
		if err := r.client.Get(ctx, keyOf(pool), now); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		isOther := pool.GetUID() != "" && now.GetUID() != pool.GetUID()
		if isOther || now.GetDeletionTimestamp() == nil { // it existed before, or is another one now
			return nil, nil
		}
		return []string{refOfPool(pool).String()}, nil
	})
}

// reopen lets Metal3's pool hand out addresses again.
func (r *run) reopen(ctx context.Context, pp *poolPlan) error {
	now, err := r.find(ctx, pp.obj)
	if err != nil || now == nil {
		return err
	}
	before := now.DeepCopy()
	if err := reopenMetal3(now); err != nil {
		return err
	}
	return r.client.Patch(ctx, now, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// changePools writes the pools of the plan that a function changes.
func (r *run) changePools(ctx context.Context, what string, change func(*v1alpha1.LocalIPPool) (changed bool)) error {
	for _, pp := range r.plan.pools {
		before := pp.pool.DeepCopy()
		if !change(pp.pool) {
			continue
		}
		if err := r.client.Patch(ctx, pp.pool, client.MergeFrom(before)); err != nil { //nolint:forbidigo // one annotation
			return fmt.Errorf(what+": %w", refOfPool(pp.pool), err)
		}
	}
	return nil
}

// beginPause pauses a pool, so that it hands out nothing, unless it is paused already.
func beginPause(pool *v1alpha1.LocalIPPool) bool {
	annotations := pool.GetAnnotations()
	if _, paused := annotations[v1alpha1.AnnotationPaused]; paused {
		return false
	}
	annotations[v1alpha1.AnnotationPaused] = pausedValue
	pool.SetAnnotations(annotations)
	return true
}

// endPause removes the pause from a pool if an import has set it, and reports whether it had.
func endPause(pool *v1alpha1.LocalIPPool) bool {
	annotations := pool.GetAnnotations()
	if annotations[v1alpha1.AnnotationPaused] != pausedValue {
		return false
	}
	delete(annotations, v1alpha1.AnnotationPaused)
	pool.SetAnnotations(annotations)
	return true
}

// readReturning makes the plan of a rollback, once no release is under way in the pools.
func (r *run) readReturning(ctx context.Context) error {
	return r.awaitReleased(ctx, func() (leaving []string, err error) {
		err = r.planReturn(ctx)
		for _, pp := range r.plan.pools {
			leaving = append(leaving, pp.leaving...)
		}
		return leaving, err
	})
}

// planReturn makes the plan of a rollback: the imported pools as they are now.
func (r *run) planReturn(ctx context.Context) error {
	st, err := r.readState(ctx)
	if err != nil {
		return err
	}
	r.plan = plan{}
	pools := map[ipam.Holder]bool{}
	for _, pool := range st.pools {
		if was, imported := originOf(pool); imported && r.o.takes(pool.Namespace, was.Pool) {
			pools[refOfPool(pool)] = true
			r.plan.pools = append(r.plan.pools, &poolPlan{ref: refOfSource(pool.Namespace, was.Pool), pool: pool, exists: true})
		}
	}
	records, holders, err := r.held(ctx, pools)
	if err != nil {
		return err
	}
	recordsOf := map[ipam.Holder][]v1alpha1.IPAllocation{}
	for _, record := range records {
		own := recordedPool(&record)
		recordsOf[own] = append(recordsOf[own], record)
	}
	read := map[string]bool{}
	for _, obj := range slices.Concat(st.claims, st.addresses) {
		read[nameOfHolder(kindClaim, obj)] = true
	}
	claims, addresses := grouped(st.claims), grouped(st.addresses)
	for _, pp := range r.plan.pools {
		own := refOfPool(pp.pool)
		pp.useReturning(st.sources, sidesOf(claims[own], addresses[own]))
		pp.remaining.add(recordsOf[own], holders, func(holder string) bool { return read[holder] })
	}
	r.plan.unpaused = r.plan.unpausedOf(st)
	return nil
}

// useReturning finds the claims and IPAddresses to give back, and those that were not imported.
func (pp *poolPlan) useReturning(sources []*unstructured.Unstructured, sides []side) {
	at := slices.IndexFunc(sources, func(obj *unstructured.Unstructured) bool {
		return obj.GetNamespace() == pp.ref.Namespace && obj.GetName() == pp.ref.Name
	})
	if at < 0 {
		pp.refuse("is gone: create it again, with the address of each claim in spec.preAllocations")
		return
	}
	pp.obj = sources[at]
	for _, from := range sides {
		e := entry{From: from}
		switch was, imported := originOf(from.object()); {
		case imported && was.Pool == pp.ref.Name:
			pp.entries = append(pp.entries, back(from, was, pp.obj))
		case isLeaving(from.object()):
			pp.leaving = append(pp.leaving, e.String())
		default:
			pp.news = append(pp.news, row{e.String(), cannot, "it was claimed after the import: delete it"})
		}
	}
}

// printReturning prints the plan of a rollback. It returns an error if that has problems.
func (r *run) printReturning(context.Context) error {
	rows := unpausedRows(r.plan.unpaused)
	for _, pp := range r.plan.pools {
		rows = slices.Concat(rows, pp.problemRows(), pp.news)
		rows = append(rows, row{refOfPool(pp.pool).String(), "deleted", "its claims go back to " + pp.ref.String()})
		if n := len(pp.entries); n > 0 {
			rows = append(rows, row{ipam.FormatCount(n, "IPAddressClaim"), "the same, from " + pp.ref.String(), "with their addresses"})
		}
	}
	return printPlan(r.o.Out, rows, &ProblemsError{Count: r.plan.problems(), Subject: "rolling back import " + importMetal3})
}
