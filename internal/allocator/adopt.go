package allocator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
)

// takeOver adopts a record for the holder of that UID, as if it had just been made; one
// that is not confirmed, or exceeds a limit, is given up.
func (a *Allocator) takeOver(ctx context.Context, record ipam.Record, uid string) (ipam.Record, error) {
	err := a.confirmedNow(record)
	if err == nil {
		err = a.withinLimits(record)
	}
	switch {
	case err == nil && a.hasTakenOver(record, uid):
		return record, nil
	case err == nil:
		taken, err := a.adopt(ctx, record, uid)
		if err == nil {
			a.taken.Store(taken.UID, taken.Version)
		}
		return taken, err
	case errors.Is(err, ipam.ErrUnconfirmed):
		return ipam.Record{}, err
	}
	return ipam.Record{}, a.giveUp(ctx, record, err)
}

// hasTakenOver reports whether this process has taken the record over as it is, so that
// its maker cannot delete it: there is no need to write to it again.
func (a *Allocator) hasTakenOver(record ipam.Record, uid string) bool {
	version, ok := a.taken.Load(record.UID)
	return ok && version == record.Version && record.HolderUID == uid && record.State == ipam.StateBound
}

// withinLimits is a *ipam.LimitError where the record's project has more of its pool or its
// class than it may.
func (a *Allocator) withinLimits(record ipam.Record) error {
	class, _ := a.catalogue.Class(record.Class)
	return a.ledger.WithinLimits(record, class.Limit)
}

// Confirmed is nil where the view shows the record and nothing else has its block:
// a replica that records a block which overlaps it gives way. Otherwise it is a
// *ipam.TakenError; a *ipam.MissingError while its pool hands out nothing; or
// ipam.ErrUnconfirmed where the view does not show the record.
func (a *Allocator) Confirmed(record ipam.Record) error {
	err := a.ledger.Confirmed(record)
	if errors.Is(err, ledger.ErrPoolClosed) {
		return poolClosed(record.Holder, record.Pool)
	}
	return err
}

// confirmedNow is Confirmed, and ipam.ErrUnconfirmed while the watch is interrupted: the store
// may have gone back to where something else has the block.
func (a *Allocator) confirmedNow(record ipam.Record) error {
	if !a.ledger.IsWatching() {
		return ipam.ErrUnconfirmed
	}
	return a.Confirmed(record)
}

// Adopt takes over a record, also one that is kept without holder, for the holder that it
// names, where it is confirmed; the error is that of Confirmed.
func (a *Allocator) Adopt(ctx context.Context, record ipam.Record) (ipam.Record, error) {
	if err := a.confirmedNow(record); err != nil {
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
	adopted := record
	adopted.Adopted, adopted.HolderUID, adopted.State = true, uid, ipam.StateBound
	adopted, err := a.updateAdopted(ctx, record, adopted)
	if err == nil {
		logChange(ctx, "Adopted a record", adopted)
		a.history.Granted(adopted, history.Adopted)
	}
	return adopted, err
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
	stamped := record
	stamped.HolderUID, stamped.ReleaseAfter = string(uid), time.Time{}
	return a.update(ctx, record, stamped)
}

// Restore takes over the record of a claim's former life, when a claim that
// was saved is created again: the record that it named, if that is still there
// and still says the same, and the claim may have it: it is of a pool that was resolved.
func (a *Allocator) Restore(ctx context.Context, order Order, name string) (ipam.Record, bool) {
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
