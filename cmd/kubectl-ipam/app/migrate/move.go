package migrate

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// moveAll moves entries, a journal at a time.
func (r *run) moveAll(ctx context.Context, entries []entry) error {
	packs, err := pack(entries)
	if err != nil {
		return err
	}
	for _, pack := range packs {
		j := &journal{entries: pack}
		if err := r.save(ctx, j); err != nil {
			return err
		}
		if err := r.carryOut(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

// carryOut carries out a journal, from the point at which an earlier run has stopped, and
// deletes it.
//
// It detaches the IPAddresses first: the operator deletes an IPAddress that has the operator's
// finalizer, and the claim of which is gone. So a rollback that is interrupted between the two
// still finds the IPAddress.
func (r *run) carryOut(ctx context.Context, j *journal) error {
	if err := r.adoptRemade(ctx, j); err != nil {
		return err
	}
	for _, step := range []func(context.Context, entry) error{r.detach, r.replace} {
		err := inParallel(ctx, j.entries, func(ctx context.Context, e entry) error {
			if err := step(ctx, e); err != nil {
				return fmt.Errorf("moving %s: %w", e, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := client.IgnoreNotFound(r.client.Delete(ctx, j.object)); err != nil {
		return fmt.Errorf("deleting ConfigMap %s, of which everything is done: %w", keyOf(j.object), err)
	}
	return nil
}

// workers bounds the number of objects that are written at a time.
const workers = 8

// inParallel calls a function for all items, some of them at a time.
func inParallel[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, item := range items {
		group.Go(func() error { return do(ctx, item) })
	}
	return group.Wait()
}

// adoptRemade takes claims into the journal that were created again, by another client and by
// the old pool's name, after their deletion: another object owns such a claim now.
func (r *run) adoptRemade(ctx context.Context, j *journal) error {
	changed := false
	for i := range j.entries {
		e := &j.entries[i]
		if e.From.Claim == nil {
			continue
		}
		claim, err := r.find(ctx, e.From.Claim)
		if err != nil {
			return err
		}
		if claim == nil || claim.GetUID() == e.From.Claim.GetUID() || namedPool(claim) != namedPool(e.From.Claim) {
			continue
		}
		e.From.Claim, e.Deleting, changed = claim, claim.GetDeletionTimestamp() != nil, true
		e.To.Claim.SetOwnerReferences(claim.GetOwnerReferences())
		e.To.Claim.SetLabels(claim.GetLabels())
	}
	if !changed {
		return nil
	}
	return r.save(ctx, j)
}

// find reads an object as it is now. It returns nil if the object does not exist.
func (r *run) find(ctx context.Context, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	now := &unstructured.Unstructured{}
	now.SetGroupVersionKind(obj.GroupVersionKind())
	err := r.client.Get(ctx, keyOf(obj), now)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s %s: %w", obj.GetKind(), keyOf(obj), err)
	}
	return now, nil
}

// findUnmoved does the same as find for an object that still names the same pool.
func (r *run) findUnmoved(ctx context.Context, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if obj == nil {
		return nil, nil
	}
	now, err := r.find(ctx, obj)
	if err != nil || now == nil || namedPool(now) != namedPool(obj) {
		return nil, err
	}
	return now, nil
}

// detach removes the claim from the owners of an IPAddress, and all finalizers from the
// IPAddress. The pool stays its owner, so that the garbage collector keeps it.
func (r *run) detach(ctx context.Context, e entry) error {
	isClaim := func(owner metav1.OwnerReference) bool { return owner.Kind == kindClaim }
	return onConflict(func() error {
		now, err := r.findUnmoved(ctx, e.From.Address)
		if err != nil || now == nil {
			return err
		}
		before := now.DeepCopy()
		now.SetOwnerReferences(slices.DeleteFunc(now.GetOwnerReferences(), isClaim))
		now.SetFinalizers(nil)
		if equality.Semantic.DeepEqual(before, now) {
			return nil
		}
		return client.IgnoreNotFound(r.patch(ctx, now, before))
	})
}

// replace deletes the claim and the IPAddress, and creates them in their new form.
func (r *run) replace(ctx context.Context, e entry) error {
	if done, err := r.isOver(ctx, e); done || err != nil {
		return err
	}
	if err := r.remove(ctx, e.From.Claim); err != nil {
		return err
	}
	claim, err := r.create(ctx, e.To.Claim)
	if err != nil {
		return err
	}
	if e.To.Address != nil {
		if err := r.remove(ctx, e.From.Address); err != nil {
			return err
		}
		address := e.To.Address.DeepCopy()
		if claim != nil {
			address.SetOwnerReferences(append(address.GetOwnerReferences(), metav1.OwnerReference{
				APIVersion: claim.GetAPIVersion(), Kind: kindClaim, Name: claim.GetName(), UID: claim.GetUID(), Controller: new(true), BlockOwnerDeletion: new(true),
			}))
		}
		if _, err := r.create(ctx, address); err != nil {
			return err
		}
	}
	return r.finish(ctx, e, claim)
}

// isOver reports whether an entry was done before, and the objects that it made were deleted
// since. As long as an entry is not done, there is a claim, or the IPAddress that was there
// before.
func (r *run) isOver(ctx context.Context, e entry) (bool, error) {
	if e.From.Claim == nil || e.From.Address == nil {
		return false, nil
	}
	claim, err := r.find(ctx, e.From.Claim)
	if err != nil || claim != nil {
		return claim != nil && claim.GetDeletionTimestamp() != nil && namedPool(claim) == namedPool(e.To.Claim), err
	}
	address, err := r.findUnmoved(ctx, e.From.Address)
	return address == nil, err
}

// finish writes the name of its IPAddress into the claim, before the operator does, and deletes
// a claim that was being deleted.
func (r *run) finish(ctx context.Context, e entry, claim *unstructured.Unstructured) error {
	if claim == nil {
		return nil
	}
	named, _, _ := unstructured.NestedString(claim.Object, "status", "addressRef", "name")
	if e.To.Address != nil && named != e.To.Address.GetName() {
		before := claim.DeepCopy()
		if err := unstructured.SetNestedField(claim.Object, e.To.Address.GetName(), "status", "addressRef", "name"); err != nil {
			return fmt.Errorf("writing status: %w", err)
		}
		if err := r.client.Status().Patch(ctx, claim, client.MergeFrom(before)); err != nil { //nolint:forbidigo // one field
			return fmt.Errorf("writing status.addressRef: %w", err)
		}
	}
	if e.Deleting && claim.GetDeletionTimestamp() == nil {
		uid := claim.GetUID()
		return client.IgnoreNotFound(r.client.Delete(ctx, claim, client.Preconditions{UID: &uid}))
	}
	return nil
}

// remove deletes an object that still names the same pool. It removes the finalizers first, so
// that no controller sees the deletion and releases the address.
func (r *run) remove(ctx context.Context, obj *unstructured.Unstructured) error {
	return onConflict(func() error {
		now, err := r.findUnmoved(ctx, obj)
		if err != nil || now == nil {
			return err
		}
		if obj.GetKind() == kindAddress && addressOf(now) != addressOf(obj) {
			return fmt.Errorf("IPAddress %s has the address %s by now, and had %s: Metal3's provider is running and has not seen that its pool is closed: stop it, and run the import again", keyOf(obj), addressOf(now), addressOf(obj))
		}
		if len(now.GetFinalizers()) > 0 {
			before := now.DeepCopy()
			now.SetFinalizers(nil)
			if err := r.patch(ctx, now, before); err != nil {
				return client.IgnoreNotFound(err)
			}
		}
		uid, version := now.GetUID(), now.GetResourceVersion()
		return client.IgnoreNotFound(r.client.Delete(ctx, now, client.Preconditions{UID: &uid, ResourceVersion: &version}))
	})
}

// create creates an object, or finds it created already.
func (r *run) create(ctx context.Context, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if obj == nil {
		return nil, nil
	}
	made := obj.DeepCopy()
	err := r.client.Create(ctx, made)
	if err == nil {
		return made, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("creating %s %s: %w", obj.GetKind(), keyOf(obj), err)
	}
	now, err := r.find(ctx, obj)
	switch {
	case err != nil:
		return nil, err
	case now == nil, namedPool(now) != namedPool(obj), obj.GetKind() == kindAddress && addressOf(now) != addressOf(obj):
		return nil, fmt.Errorf("%s %s was created by another client, from %s: is its Cluster paused? run the import again", obj.GetKind(), keyOf(obj), namedPool(obj))
	}
	return now, nil
}

// patch writes an object, if it is still as it was read.
func (r *run) patch(ctx context.Context, obj, before *unstructured.Unstructured) error {
	err := r.client.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("writing %s %s: %w", obj.GetKind(), keyOf(obj), err)
	}
	return nil
}

// onConflict repeats a function for as long as other clients write to the same object.
func onConflict(do func() error) error {
	return retry.OnError(wait.Backoff{Steps: 30, Duration: retry.DefaultRetry.Duration, Factor: 1.2, Jitter: 0.5}, apierrors.IsConflict, do)
}
