package allocator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
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
		if record.HolderUID == order.HolderUID && record.State == ipam.StateBound && !record.Terminating {
			return a.takeOver(ctx, record, order.HolderUID)
		}
	}
	record, err := a.Grant(ctx, order)
	if apierrors.IsAlreadyExists(err) {
		a.ledger.AwaitStored(ctx, order.Record, order.keys())
		return ipam.Record{}, fmt.Errorf("another process is binding %s: %w", order.Holder, ipam.ErrUnconfirmed)
	}
	return record, err
}

// takeOver adopts a record for the holder of that UID, as if it had just been made; one
// that is not confirmed, or exceeds a limit, is given up.
func (a *Allocator) takeOver(ctx context.Context, record ipam.Record, uid string) (ipam.Record, error) {
	err := a.Confirmed(record)
	if err == nil {
		err = a.withinLimits(record)
	}
	switch {
	case err == nil:
		return a.adopt(ctx, record, uid)
	case errors.Is(err, ipam.ErrUnconfirmed):
		return ipam.Record{}, err
	}
	return ipam.Record{}, a.giveUp(ctx, record, err)
}

// withinLimits is a *ipam.LimitError where the record's project has more of its pool or its
// class than it may.
func (a *Allocator) withinLimits(record ipam.Record) error {
	class, _ := a.catalogue.Class(record.Class)
	return a.ledger.WithinLimits(record, class.Limit)
}

// Confirmed is nil where the view shows the record and nothing else has its block:
// whoever records a block that overlaps it gives way. Otherwise it is a
// *ipam.TakenError; a *ipam.MissingError while its pool hands out nothing; or
// ipam.ErrUnconfirmed where the view does not show the record.
func (a *Allocator) Confirmed(record ipam.Record) error {
	err := a.ledger.Confirmed(record)
	if errors.Is(err, ledger.ErrPoolClosed) {
		return poolClosed(record.Holder, record.Pool)
	}
	return err
}

// Adopt takes over a record for the holder that it names, where it is confirmed; the
// error is that of Confirmed.
func (a *Allocator) Adopt(ctx context.Context, record ipam.Record) (ipam.Record, error) {
	if err := a.Confirmed(record); err != nil {
		return ipam.Record{}, err
	}
	return a.adopt(ctx, record, record.HolderUID)
}

// adopt takes over a confirmed record that this process did not confirm, for the
// holder of that UID; empty where it does not exist yet. The own record of a pool that
// was to be released is kept from then on.
//
// The record is written to, so that a maker that was paused cannot delete it
// any more: deletions carry the version that they judged.
func (a *Allocator) adopt(ctx context.Context, record ipam.Record, uid string) (ipam.Record, error) {
	holder := "null"
	if uid != "" {
		holder = strconv.Quote(uid)
	}
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q,"annotations":{%q:%q}},"spec":{"state":%q,"claimRef":{"uid":%s}}}`,
		record.UID, record.Version, v1alpha1.AnnotationAdopted, randomSuffix(), ipam.StateBound, holder)
	record.Adopted, record.HolderUID, record.State = true, uid, ipam.StateBound
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
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q},"spec":{"releaseAfter":null,"claimRef":{"uid":%q}}}`,
		record.UID, record.Version, uid)
	record.HolderUID, record.ReleaseAfter = string(uid), time.Time{}
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
// and still says the same, and the claim may have it: it is of a pool that was resolved.
func (a *Allocator) Restored(ctx context.Context, order Order, name string) (ipam.Record, bool) {
	record, ok := a.ledger.Record(ipam.Name{Namespace: order.Holder.Namespace, Name: name})
	if !ok || record.Holder != order.Holder || record.Block != order.Terms.Block || record.State != ipam.StateBound || record.Terminating {
		return ipam.Record{}, false
	}
	may := slices.ContainsFunc(order.Pools, func(p ipam.Pool) bool { return p.Key == record.Pool })
	if !may || record.Class != order.Terms.Class || a.Confirmed(record) != nil {
		return ipam.Record{}, false
	}
	adopted, err := a.adopt(ctx, record, "")
	return adopted, err == nil
}
