package allocator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"gomodules.xyz/jsonpatch/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
)

// Release deletes a record in the version that was last seen. If it has changed since, or is
// another one, the error is a conflict, and the caller reads the record again. A missing record is
// no error. A missing namespace is one: Kubernetes can finish a namespace that is not empty, when
// its API server has just started, and then refuses to change the objects left in it until the
// namespace is created again.
//
// The block is free when the watch shows the deletion. A pool's own record is released in two steps
// (MarkReleasing); if blocks of the pool are recorded the error is ipam.ErrPoolInUse.
func (a *Allocator) Release(ctx context.Context, record ipam.Record) error {
	return a.release(ctx, record, false)
}

// ReleaseFormer releases an own record of a pool that stays, and has another one since its ranges were
// edited. If there is no other, or blocks of the pool need this one, the error is ipam.ErrPoolInUse.
func (a *Allocator) ReleaseFormer(ctx context.Context, record ipam.Record) error {
	return a.release(ctx, record, true)
}

func (a *Allocator) release(ctx context.Context, record ipam.Record, poolStays bool) (err error) {
	ctx, span := a.beginRelease(ctx, record)
	defer func() { endRelease(span, err) }()
	if record.Purpose == ipam.PurposePool {
		marked, err := a.markReleasing(ctx, record, poolStays)
		if err != nil {
			return ignoreGone(err)
		}
		record = marked
	}
	if err := a.deleteRecord(ctx, record); err != nil {
		return ignoreGone(err)
	}
	err = a.removeFinalizer(ctx, record)
	if err == nil {
		logRecord(ctx, changeLevel, "Released a record", record)
	}
	return ignoreGone(err)
}

// MarkReleasing writes into a pool's own record that it is being released, waits until this
// process's own watch shows that, and then looks for blocks of the pool that need this record: a replica
// that records one later sees the mark, and gives way. If there is one, MarkReleasing removes the mark, and the
// error is ipam.ErrPoolInUse. Otherwise the record may be deleted in the returned version. A mark
// that stayed because its writer died is removed by the pool's controller, if the pool stays.
func (a *Allocator) MarkReleasing(ctx context.Context, poolRecord ipam.Record) (ipam.Record, error) {
	return a.markReleasing(ctx, poolRecord, false)
}

func (a *Allocator) markReleasing(ctx context.Context, poolRecord ipam.Record, poolStays bool) (ipam.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	pool, previousVersion := convert.PoolOf(poolRecord.Holder), poolRecord.Version
	if poolRecord.State != ipam.StateReleasing && a.Ledger.IsNeeded(poolRecord, pool, poolStays) {
		return ipam.Record{}, ipam.ErrPoolInUse
	}
	marked := poolRecord
	if poolRecord.State != ipam.StateReleasing {
		var err error
		if marked, err = a.setState(ctx, poolRecord, ipam.StateReleasing); err != nil {
			return ipam.Record{}, err
		}
	}
	verdict := ledger.NotShown
	a.Ledger.Await(ctx, []ipam.PoolKey{poolRecord.Pool}, func() bool {
		verdict = a.Ledger.Release(marked, previousVersion, pool, poolStays)
		return verdict != ledger.NotShown
	})
	switch verdict {
	case ledger.Unused:
		return marked, nil
	case ledger.InUse:
		_, err := a.setState(ctx, marked, ipam.StateBound)
		return ipam.Record{}, errors.Join(ipam.ErrPoolInUse, err)
	}
	return ipam.Record{}, fmt.Errorf("marking IPAllocation %s: %w", poolRecord.Name, ipam.ErrUnconfirmed)
}

func (a *Allocator) setState(ctx context.Context, record ipam.Record, state ipam.State) (ipam.Record, error) {
	changed := record
	changed.State = state
	changed, err := a.updateRecord(ctx, record, changed)
	if err == nil {
		logRecord(ctx, changeLevel, "Changed the state of a record", changed, "from", record.State, "to", state)
	}
	return changed, err
}

// ignoreGone returns the error, or nil if the error means that the record is gone.
func ignoreGone(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces" {
		return err
	}
	return kubeutil.IgnoreNotFound(err)
}

// deleteRecord requests the deletion of the record in the version that was judged.
func (a *Allocator) deleteRecord(ctx context.Context, record ipam.Record) error {
	if record.Terminating {
		return nil
	}
	preconditions := client.Preconditions{UID: new(types.UID(record.UID)), ResourceVersion: &record.Version}
	err := a.Client.Delete(ctx, convert.Allocation(record), preconditions)
	if err != nil {
		return fmt.Errorf("deleting IPAllocation %s: %w", record.Name, err)
	}
	return nil
}

// removeFinalizer removes the operator's finalizer from a record that is being deleted.
func (a *Allocator) removeFinalizer(ctx context.Context, record ipam.Record) error {
	finalizerPath := "/metadata/finalizers/0"
	patch, err := json.Marshal([]jsonpatch.Operation{
		jsonpatch.NewOperation("test", "/metadata/uid", record.UID),
		jsonpatch.NewOperation("test", finalizerPath, v1alpha1.FinalizerHeld),
		jsonpatch.NewOperation("remove", finalizerPath, nil),
	})
	if err != nil {
		return err
	}
	err = a.Client.Patch(ctx, convert.Allocation(record), client.RawPatch(types.JSONPatchType, patch))
	if apierrors.IsInvalid(err) && kubeutil.Cause(err) == string(metav1.StatusReasonInvalid) { // the operator's is not the first finalizer
		err = a.removeFinalizerAmongOthers(ctx, record)
	}
	if err != nil {
		return fmt.Errorf("removing the finalizer of IPAllocation %s: %w", record.Name, err)
	}
	return nil
}

// removeFinalizerAmongOthers removes the operator's finalizer from a record that has others.
func (a *Allocator) removeFinalizerAmongOthers(ctx context.Context, record ipam.Record) error {
	obj := convert.Allocation(record)
	if err := a.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
		return err
	}
	before := obj.DeepCopy()
	if string(obj.UID) != record.UID || !controllerutil.RemoveFinalizer(obj, v1alpha1.FinalizerHeld) {
		return nil
	}
	return a.Client.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// discard gives up a record that this process made, in the background, whatever the outcome of its
// request, and calls onRelease once it is released. Of the request's ctx it keeps only the values. A
// record that cannot be deleted is left to the collection of orphans.
func (a *Allocator) discard(ctx context.Context, record ipam.Record, onRelease func()) {
	a.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTimeout)
		defer cancel()
		switch err := a.Release(ctx, record); {
		case err == nil:
			onRelease()
		case !apierrors.IsConflict(err):
			a.Log.Info("Could not delete an unused allocation; it will be collected", "record", record.Name.String(), "error", err.Error())
		}
	})
}

// Discard gives up a record that was granted but will not be used. One that was taken over is left
// to the collection of orphans, which may retain it.
func (a *Allocator) Discard(ctx context.Context, record ipam.Record) {
	if !record.Adopted {
		a.discard(ctx, record, func() { a.History.Released(record, history.Unused) })
	}
}

// ApplyTransition writes into a record without holder that its block stays taken, in a state and
// until a time.
func (a *Allocator) ApplyTransition(ctx context.Context, record ipam.Record, t ipam.Transition) error {
	after := record
	after.State, after.ReleaseAfter = t.State, t.ReleaseAfter
	_, err := a.updateRecord(ctx, record, after)
	if err == nil {
		logRecord(ctx, changeLevel, "Changed the state of a record", after, "from", record.State, "to", t.State, "until", t.ReleaseAfter)
	}
	return err
}

// SetReclaimPolicy writes a claim's reclaim policy into its record.
func (a *Allocator) SetReclaimPolicy(ctx context.Context, record ipam.Record, policy ipam.Reclaim) (ipam.Record, error) {
	changed := record
	changed.Reclaim = policy
	return a.updateRecord(ctx, record, changed)
}

// giveUp releases a record whose holder does not have it, and joins the error with the cause.
func (a *Allocator) giveUp(ctx context.Context, record ipam.Record, cause error) error {
	if err := a.Fence(ctx, record); err != nil {
		return err
	}
	err := a.Release(ctx, record)
	if err == nil {
		a.History.Released(record, history.GivenUp)
	}
	return errors.Join(cause, err)
}

// Fence ensures that a process that read the record's holder earlier can no longer make the holder
// name the record: a leader that was paused between confirming the record and writing that into its
// claim. It must be called before the release of a record whose holder may exist.
//
// If the holder has the record, the caller's view was old: the error is then ipam.ErrUnconfirmed.
// If another client changes the holder, it is a conflict. Fence does nothing for a holder that is
// gone, or has another block. The caller is responsible for holders of a kind that is not known
// here.
func (a *Allocator) Fence(ctx context.Context, record ipam.Record) error {
	var holder client.Object
	var recordRef func() string
	switch {
	case record.Holder.Kind == "IPClaim":
		claim := &v1alpha1.IPClaim{}
		holder, recordRef = claim, func() string { return claim.Spec.AllocationName }
	case record.Holder.IsPool():
		pool := convert.NewPool(ipam.PoolKind(record.Holder.Kind))
		holder, recordRef = pool, func() string {
			switch {
			case pool.PoolSpec().Occupies != v1alpha1.OccupiesRanges:
				return pool.PoolSpec().CIDR
			case slices.Equal(convert.BlocksOf(pool), record.Blocks()):
				return record.Name.Name
			}
			return "other ranges"
		}
	case record.Holder.Kind == convert.AddressClaimKind:
		claim := addressObject(convert.AddressClaimKind)
		holder, recordRef = claim, func() string { return addressOf(claim) }
	default:
		return nil
	}
	err := a.Client.Get(ctx, client.ObjectKey{Namespace: record.Holder.Namespace, Name: record.Holder.Name}, holder)
	switch {
	case err != nil:
		return kubeutil.IgnoreNotFound(err)
	case !record.MayBeOf(string(holder.GetUID())):
		return nil
	case recordRef() == record.Name.Name || recordRef() == record.Block.String():
		return hasRecord(record)
	case recordRef() != "" && record.Holder.Kind == convert.AddressClaimKind:
		return a.fenceAddress(ctx, record, recordRef())
	case recordRef() != "":
		return nil
	}
	return a.markGivenUp(ctx, record, holder)
}

// markGivenUp writes into the holder, once, that this version of the record was given up for it. A
// holder that is read later has the record only if that is taken over first, in another version.
func (a *Allocator) markGivenUp(ctx context.Context, record ipam.Record, holder client.Object) error {
	mark := record.UID + "/" + record.Version
	if holder.GetAnnotations()[v1alpha1.AnnotationGivenUp] == mark {
		return nil
	}
	before := holder.DeepCopyObject().(client.Object)
	holder.SetAnnotations(labels.Merge(holder.GetAnnotations(), labels.Set{v1alpha1.AnnotationGivenUp: mark}))
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := a.Client.Patch(ctx, holder, patch); err != nil {
		return kubeutil.IgnoreNotFound(fmt.Errorf("giving up %s for %s: %w", record.Name, record.Holder, err))
	}
	return nil
}

func hasRecord(record ipam.Record) error {
	return fmt.Errorf("%s has %s: %w", record.Holder, record.Name, ipam.ErrUnconfirmed)
}

// fenceAddress fences a record against a claim that names an IPAddress: it has the record if their
// addresses are equal.
func (a *Allocator) fenceAddress(ctx context.Context, record ipam.Record, name string) error {
	address := addressObject("IPAddress")
	if err := a.Client.Get(ctx, client.ObjectKey{Namespace: record.Holder.Namespace, Name: name}, address); err != nil {
		return kubeutil.IgnoreNotFound(err)
	}
	text, _, _ := unstructured.NestedString(address.Object, "spec", "address")
	if addr, err := netip.ParseAddr(text); err == nil && addr == record.Block.Addr() {
		return hasRecord(record)
	}
	return nil
}

// addressObject returns an empty object of Cluster API, whose types are not known here.
func addressObject(kind string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(schema.GroupVersionKind{Group: convert.AddressClaimGroup, Version: "v1beta2", Kind: kind})
	return obj
}

// addressOf returns the name of the claim's IPAddress, if its status names one.
func addressOf(claim *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(claim.Object, "status", "addressRef", "name")
	return name
}
