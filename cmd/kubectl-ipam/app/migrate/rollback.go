package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// returning represents a pool of ours that is rolled back.
type returning struct {
	pool v1alpha1.Pool
	// source holds the pool that it was imported from.
	source  *unstructured.Unstructured
	ref     poolRef
	entries []entry
	// remaining holds the holders of its blocks that were not imported, and problems the other
	// obstacles.
	remaining
	problems []string
	// unpaused holds the Clusters that must be paused.
	unpaused []client.ObjectKey
}

// rollback gives everything back to the other provider, and deletes our pools.
func (r *run) rollback(ctx context.Context) error {
	if err := r.resume(ctx); err != nil {
		return err
	}
	all, err := r.returning(ctx)
	if err != nil {
		return err
	}
	if err := r.printReturning(all); err != nil {
		return err
	}
	if len(all) == 0 {
		r.say("There is nothing to roll back.")
		return nil
	}
	for _, back := range all {
		if err := r.pausePool(ctx, back.pool); err != nil {
			return err
		}
	}
	if err := r.settle(ctx); err != nil { // so that every replica has seen that the pools are paused
		return err
	}
	if all, err = r.returning(ctx); err != nil {
		return err
	}
	if err := r.refuseNews(all); err != nil {
		return errors.Join(r.printReturning(all), r.unpause(ctx, all))
	}
	for _, back := range all {
		if err := r.giveBack(ctx, back); err != nil {
			return err
		}
	}
	return nil
}

// giveBack moves the claims and IPAddresses that were imported from a pool back to it.
func (r *run) giveBack(ctx context.Context, back returning) error {
	if err := r.moveAll(ctx, back.entries); err != nil {
		return err
	}
	ours := []string{v1alpha1.FinalizerRelease, v1alpha1.FinalizerProtect}
	if err := r.clean(ctx, map[poolRef]bool{back.ref: true}, ours); err != nil {
		return err
	}
	own := refOfPool(back.pool)
	released := func() ([]string, error) { return r.stillHeld(ctx, own) }
	if err := r.await(ctx, releasedByOperator, released); err != nil {
		return err
	}
	// Our pool is paused, and nothing of it is in use any more.
	if err := onConflict(func() error { return r.reopen(ctx, back) }); err != nil {
		return fmt.Errorf("opening %s: %w", back.ref, err)
	}
	if err := client.IgnoreNotFound(r.client.Delete(ctx, back.pool.(client.Object))); err != nil {
		return fmt.Errorf("deleting %s: %w", own, err)
	}
	if err := r.awaitDeletion(ctx, back.pool); err != nil {
		return err
	}
	r.say("Gave %s back to %s, and deleted %s.", ipam.FormatCount(len(back.entries), "claim"), back.ref, own)
	return nil
}

// awaitDeletion waits until a pool that an import has made does not exist any more.
func (r *run) awaitDeletion(ctx context.Context, pool v1alpha1.Pool) error {
	name, obj := refOfPool(pool).String(), pool.DeepCopyObject().(client.Object)
	return r.await(ctx, "deleted, as the operator still has a finalizer on it: see that it is running", func() ([]string, error) {
		err := r.client.Get(ctx, keyOf(pool), obj)
		if err == nil && pool.GetUID() != "" && obj.GetUID() != pool.GetUID() || err == nil && obj.GetDeletionTimestamp() == nil {
			return nil, nil // it existed before, or is another one now
		}
		if err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		return []string{name}, nil
	})
}

// reopen lets the pool of the other provider hand out addresses again.
func (r *run) reopen(ctx context.Context, back returning) error {
	now, err := r.find(ctx, back.source)
	if err != nil || now == nil {
		return err
	}
	before := now.DeepCopy()
	if err := r.provider.reopen(now); err != nil {
		return err
	}
	return r.client.Patch(ctx, now, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// stillHeld returns the names of the IPAllocations of a pool.
func (r *run) stillHeld(ctx context.Context, pool poolRef) ([]string, error) {
	records, err := r.records(ctx, map[poolRef]bool{pool: true})
	names := make([]string, len(records))
	for i := range records {
		names[i] = "IPAllocation " + keyOf(&records[i]).String()
	}
	slices.Sort(names)
	return names, err
}

// pausePool pauses a pool, so that it hands out nothing.
func (r *run) pausePool(ctx context.Context, pool v1alpha1.Pool) error {
	before := pool.DeepCopyObject().(client.Object)
	annotations := pool.GetAnnotations()
	if _, paused := annotations[v1alpha1.AnnotationPaused]; paused {
		return nil
	}
	annotations[v1alpha1.AnnotationPaused] = pausedValue
	pool.SetAnnotations(annotations)
	if err := r.client.Patch(ctx, pool.(client.Object), client.MergeFrom(before)); err != nil {
		return fmt.Errorf("pausing %s: %w", refOfPool(pool), err)
	}
	return nil
}

// unpause opens the pools again that pausePool has closed.
func (r *run) unpause(ctx context.Context, all []returning) error {
	for _, back := range all {
		if back.pool.GetAnnotations()[v1alpha1.AnnotationPaused] != pausedValue {
			continue
		}
		before := back.pool.DeepCopyObject().(client.Object)
		annotations := back.pool.GetAnnotations()
		delete(annotations, v1alpha1.AnnotationPaused)
		back.pool.SetAnnotations(annotations)
		if err := r.client.Patch(ctx, back.pool.(client.Object), client.MergeFrom(before)); err != nil {
			return fmt.Errorf("opening %s again: %w", refOfPool(back.pool), err)
		}
	}
	return nil
}

// returning returns the imported pools, with the objects that name them, once no release is
// under way in them.
func (r *run) returning(ctx context.Context) (all []returning, err error) {
	_, err = r.awaitReleased(ctx, func() (found remaining, err error) {
		all, err = r.readReturning(ctx)
		for _, back := range all {
			found.leaving = append(found.leaving, back.leaving...)
		}
		return found, err
	})
	return all, err
}

// readReturning reads the imported pools as they are now.
func (r *run) readReturning(ctx context.Context) ([]returning, error) {
	st, err := readState(ctx, r.client, r.provider, r.o.Namespace)
	if err != nil {
		return nil, err
	}
	sources := map[poolRef]*unstructured.Unstructured{}
	for _, obj := range st.sources {
		sources[poolRef{Group: obj.GroupVersionKind().Group, Kind: obj.GetKind(), Namespace: obj.GetNamespace(), Name: obj.GetName()}] = obj
	}
	var all []returning
	pools := map[poolRef]bool{}
	for _, pool := range st.pools {
		was, imported := originOf(pool)
		if !imported || pool.GetLabels()[labelImport] != r.provider.name || !r.o.takes(was.Pool.Namespace, was.Pool.Name) {
			continue
		}
		back := returning{pool: pool, ref: was.Pool, source: sources[was.Pool]}
		if back.source == nil {
			back.problems = append(back.problems, "is gone: create it again, with the annotation "+v1alpha1.AnnotationClusterAPIPaused)
		} else {
			back.use(r.provider, st)
		}
		pools[refOfPool(pool)] = true
		all = append(all, back)
	}
	records, err := r.records(ctx, pools)
	if err != nil {
		return nil, err
	}
	holders, err := r.holders(ctx, records)
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].judge(records, holders, st)
		all[i].unpaused = unpaused(all[i].entries, st)
	}
	return all, nil
}

// use finds the claims and IPAddresses to give back, and those that were not imported.
func (back *returning) use(p provider, st state) {
	own := refOfPool(back.pool)
	byClaim := map[client.ObjectKey]*unstructured.Unstructured{}
	for _, address := range st.addresses {
		if namedPool(address) == own {
			byClaim[keyOf(address)] = address
		}
	}
	for _, claim := range st.claims {
		if namedPool(claim) != own {
			continue
		}
		address := byClaim[keyOf(claim)]
		delete(byClaim, keyOf(claim))
		back.add(p, side{Claim: claim, Address: address})
	}
	for _, key := range sortedObjectKeys(byClaim) {
		back.add(p, side{Address: byClaim[key]})
	}
}

func (back *returning) add(p provider, from side) {
	e := entry{From: from}
	was, imported := originOf(e.object())
	if !imported || was.Pool != back.ref {
		if isLeaving(e.object()) {
			back.leaving = append(back.leaving, e.String())
			return
		}
		back.rows = append(back.rows, row{e.String(), cannot, "it was claimed after the import: delete it"})
		return
	}
	back.entries = append(back.entries, p.back(from, was, back.source))
}

// judge finds the holders of blocks of the pool other than the claims and IPAddresses that were
// read.
func (back *returning) judge(records []v1alpha1.IPAllocation, holders map[string]metav1.Object, st state) {
	read := map[string]bool{}
	for _, obj := range slices.Concat(st.claims, st.addresses) {
		read[nameOfHolder(kindClaim, obj)] = true
	}
	own := refOfPool(back.pool)
	poolRecords := slices.DeleteFunc(slices.Clone(records), func(record v1alpha1.IPAllocation) bool { return recordedPool(&record) != own })
	found := remainingOf(poolRecords, holders, func(record *v1alpha1.IPAllocation) bool { return read[holderName(record)] })
	back.rows, back.leaving = append(back.rows, found.rows...), append(back.leaving, found.leaving...)
}

// printReturning prints the objects that are given back.
func (r *run) printReturning(all []returning) error {
	var rows []row
	for _, back := range all {
		own := refOfPool(back.pool).String()
		for _, problem := range back.problems {
			rows = append(rows, row{back.ref.String(), cannot, problem})
		}
		for _, key := range back.unpaused {
			rows = append(rows, unpausedRow(key))
		}
		rows = append(rows, back.rows...)
		rows = append(rows, row{own, "deleted", "its claims go back to " + back.ref.String()})
		if n := len(back.entries); n > 0 {
			rows = append(rows, row{ipam.FormatCount(n, "IPAddressClaim"), "the same, from " + back.ref.String(), "with their addresses"})
		}
	}
	if err := printTable(r.out, rows); err != nil {
		return err
	}
	return r.refuseNews(all)
}

// refuseNews refuses a rollback if anything was claimed since the import.
func (r *run) refuseNews(all []returning) error {
	n := 0
	for _, back := range all {
		n += len(back.rows) + len(back.problems) + len(back.unpaused)
	}
	if n > 0 {
		return &ProblemsError{Count: n, Subject: "rolling back import " + r.provider.name}
	}
	return nil
}
