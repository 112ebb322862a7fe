package allocator

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// BindName is the name of the record of a claim that exists: always the same,
// so that a restarted or second leader finds the record instead of making
// another.
func BindName(holder ipam.Holder, uid string) ipam.Name {
	suffix := digest(5, holder.Group, holder.Kind, holder.Namespace, holder.Name, uid)
	return ipam.Name{Namespace: holder.Namespace, Name: prefixOf(holder.Name) + "-" + suffix}
}

// Bind gives a claim that exists its block: the one already recorded for it,
// where there is one, else as Grant.
func (a *Allocator) Bind(ctx context.Context, order Order) (ipam.Record, error) {
	order.Record = BindName(order.Holder, order.HolderUID)
	for _, record := range a.ledger.HeldBy(order.Holder) {
		if record.HolderUID == order.HolderUID && record.State == ipam.Bound && !record.Terminating {
			adopted, err := a.Adopt(ctx, record)
			if _, ok := errors.AsType[*ipam.TakenError](err); ok {
				return ipam.Record{}, a.giveUp(ctx, record, err)
			}
			return adopted, err
		}
	}
	record, err := a.Grant(ctx, order)
	if apierrors.IsAlreadyExists(err) {
		return ipam.Record{}, fmt.Errorf("another process is binding %s: %w", order.Holder, ipam.ErrUnconfirmed)
	}
	return record, err
}

// Adopt takes over a record that this process did not confirm, for the holder
// that it names. It is confirmed if nothing overlaps it. One that has a rival is
// not: the error is a *ipam.TakenError, and the record stays, because its maker
// may have seen it before the rival, and handed it out.
//
// The record is written to, so that a maker that was paused cannot delete it
// any more: deletions carry the version that they judged.
func (a *Allocator) Adopt(ctx context.Context, record ipam.Record) (ipam.Record, error) {
	return a.adopt(ctx, record, record.HolderUID)
}

// adopt is Adopt for a holder of that UID; empty where it does not exist yet.
func (a *Allocator) adopt(ctx context.Context, record ipam.Record, uid string) (ipam.Record, error) {
	if rival, ok := a.ledger.Rival(record); ok {
		return ipam.Record{}, &ipam.TakenError{Block: record.Block, Pool: record.Pool, Holder: rival.Holder, Overlap: rival.Block}
	}
	holder := "null"
	if uid != "" {
		holder = strconv.Quote(uid)
	}
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q,"annotations":{%q:%q}},"spec":{"claimRef":{"uid":%s}}}`,
		record.UID, record.Version, v1alpha1.AnnotationAdopted, randomSuffix(), holder)
	record.Adopted, record.HolderUID = true, uid
	return a.patch(ctx, record, patch)
}

// Stamp writes the holder's UID into a record that was made before its holder
// existed, so that the holder's deletion releases this record and no other. The
// holder has been read from a cache, and may be gone by now, with another of its
// name in its place whose record this is: so it is read once more, after the
// record was. Where it is not the same any more, the error is a conflict.
func (a *Allocator) Stamp(ctx context.Context, record ipam.Record, holder client.Object) (ipam.Record, error) {
	uid, now := holder.GetUID(), holder.DeepCopyObject().(client.Object)
	if err := a.client.Get(ctx, client.ObjectKeyFromObject(holder), now); err != nil {
		return ipam.Record{}, fmt.Errorf("looking for %s again: %w", record.Holder, err)
	}
	if now.GetUID() != uid {
		return ipam.Record{}, fmt.Errorf("stamping IPAllocation %s: %w", record.Name,
			apierrors.NewConflict(schema.GroupResource{Group: record.Holder.Group, Resource: record.Holder.Kind}, record.Holder.Name,
				errors.New("it was deleted and made again")))
	}
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q},"spec":{"claimRef":{"uid":%q}}}`,
		record.UID, record.Version, uid)
	record.HolderUID = string(uid)
	return a.patch(ctx, record, patch)
}

// patch changes a record on condition that it is as it was seen.
func (a *Allocator) patch(ctx context.Context, record ipam.Record, patch string) (ipam.Record, error) {
	obj := adapt.Allocation(record)
	if err := a.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return ipam.Record{}, fmt.Errorf("changing IPAllocation %s: %w", record.Name, err)
	}
	record.Version = obj.ResourceVersion
	return record, nil
}

// Restored takes over the record of a claim's former life, when a claim that
// was saved is created again: the record that it named, if that is still there
// and still says the same.
func (a *Allocator) Restored(ctx context.Context, order Order, name string) (ipam.Record, bool) {
	record, ok := a.ledger.Record(ipam.Name{Namespace: order.Holder.Namespace, Name: name})
	if !ok || record.Holder != order.Holder || record.Block != order.Terms.Block || record.State != ipam.Bound || record.Terminating {
		return ipam.Record{}, false
	}
	adopted, err := a.adopt(ctx, record, "")
	return adopted, err == nil
}
