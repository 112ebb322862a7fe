package allocator

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/absent"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/failpoint"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Release deletes a record as it was last seen. One that has changed since, or
// is another by now, is left alone: the error is then a conflict, and whoever
// releases looks again. A record that is gone is no error. That its namespace is
// gone is one: Kubernetes can finish a namespace that is not empty, when its API
// server has just started, and refuses to change what is left in there until the
// namespace is made again.
//
// The block is free when the watch shows the deletion, here and on every other
// replica.
func (a *Allocator) Release(ctx context.Context, record ipam.Record) error {
	if err := a.delete(ctx, record); err != nil {
		return ignoreGone(err)
	}
	return ignoreGone(a.letGo(ctx, record))
}

// ignoreGone is the error, but for one that says that the record is gone.
func ignoreGone(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces" {
		return err
	}
	return absent.Ignore(err)
}

// delete asks for the deletion, on condition that the record is the one that
// was judged, in the state in which it was.
func (a *Allocator) delete(ctx context.Context, record ipam.Record) error {
	if record.Terminating {
		return nil
	}
	asJudged := client.Preconditions{UID: objectUID(record.UID), ResourceVersion: &record.Version}
	if failpoint.ReleaseByName() {
		asJudged = client.Preconditions{}
	}
	err := a.client.Delete(ctx, adapt.Allocation(record), asJudged)
	if err != nil {
		return fmt.Errorf("deleting IPAllocation %s: %w", record.Name, err)
	}
	return nil
}

// letGo takes our finalizer off a record that is being deleted.
func (a *Allocator) letGo(ctx context.Context, record ipam.Record) error {
	if failpoint.ReleaseByName() {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		return a.client.Patch(ctx, adapt.Allocation(record), patch)
	}
	patch := fmt.Sprintf(`[{"op":"test","path":"/metadata/uid","value":%q},{"op":"test","path":"/metadata/finalizers/0","value":%q},{"op":"remove","path":"/metadata/finalizers/0"}]`,
		record.UID, adapt.Allocation(record).Finalizers[0])
	err := a.client.Patch(ctx, adapt.Allocation(record), client.RawPatch(types.JSONPatchType, []byte(patch)))
	if apierrors.IsInvalid(err) { // ours is not the first finalizer
		err = a.letGoAmongOthers(ctx, record)
	}
	if err != nil {
		return fmt.Errorf("letting go of IPAllocation %s: %w", record.Name, err)
	}
	return nil
}

// letGoAmongOthers takes our finalizer off a record on which somebody has put
// another.
func (a *Allocator) letGoAmongOthers(ctx context.Context, record ipam.Record) error {
	obj := adapt.Allocation(record)
	if err := a.client.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
		return err
	}
	before := obj.DeepCopy()
	if string(obj.UID) != record.UID || !controllerutil.RemoveFinalizer(obj, v1alpha1.FinalizerHeld) {
		return nil
	}
	return a.client.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// discard gives up a record of this process's own in the background, whatever
// becomes of the request that it was for. What fails is left to the collection
// of orphans.
func (a *Allocator) discard(record ipam.Record) {
	a.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), discardWithin)
		defer cancel()
		if err := a.Release(ctx, record); err != nil && !apierrors.IsConflict(err) {
			a.log.Info("an allocation that is not used could not be deleted; it will be collected", "allocation", record.Name, "cause", err.Error())
		}
	})
}

// Discard gives up a record that was granted but will not be used. One that was
// taken over is left to the collection of orphans, which may retain it.
func (a *Allocator) Discard(record ipam.Record) {
	if !record.Adopted {
		a.discard(record)
	}
}

// Keep writes that the block of a record without holder stays taken, until when
// and as what.
func (a *Allocator) Keep(ctx context.Context, record ipam.Record, s ipam.Settlement) error {
	releaseAfter := "null"
	if !s.ReleaseAfter.IsZero() {
		releaseAfter = strconv.Quote(s.ReleaseAfter.UTC().Format(time.RFC3339))
	}
	_, err := a.patch(ctx, record, fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q},"spec":{"state":%q,"releaseAfter":%s}}`,
		record.UID, record.Version, s.State, releaseAfter))
	return err
}

// Reclaim writes a claim's reclaim policy into its record.
func (a *Allocator) Reclaim(ctx context.Context, record ipam.Record, policy ipam.Reclaim) (ipam.Record, error) {
	record.Reclaim = policy
	return a.patch(ctx, record, fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q},"spec":{"reclaimPolicy":%q}}`,
		record.UID, record.Version, policy))
}
