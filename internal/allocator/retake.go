package allocator

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
)

// retained is the block that was kept for a claim of this namespace and name, or
// of its sticky key, where it is still what the claim asks for. Of several under
// one key it is the one that is kept longest: the last that was given back. A record
// whose block another one has is not taken over.
func (a *Allocator) retained(order Order) (ipam.Record, bool) {
	var last ipam.Record
	for _, record := range a.formerly(order) {
		if !order.mayRetake(record) || record.Terminating || !order.accepts(record) || !a.isUndisputed(record) {
			continue
		}
		if record.Holder == order.Holder {
			return record, true
		}
		if last.UID == "" || record.ReleaseAfter.After(last.ReleaseAfter) {
			last = record
		}
	}
	return last, last.UID != ""
}

// isUndisputed reports whether a record is confirmed, and in conflict with no other one.
func (a *Allocator) isUndisputed(record ipam.Record) bool {
	return a.ledger.Confirmed(record) == nil && a.ledger.Conflict(record) == nil
}

// formerly are the records of earlier claims of this name, or of the sticky key.
func (a *Allocator) formerly(order Order) []ipam.Record {
	records := a.ledger.HeldBy(order.Holder)
	if order.Sticky == "" {
		return records
	}
	return append(records, a.ledger.Sticky(ipam.Name{Namespace: order.Holder.Namespace, Name: order.Sticky})...)
}

// mayRetake reports whether a record is retained, or was until an earlier create of the
// same name took it over. That one is not stored: the name is free. Should it be after
// all, it is this claim that is not, and both name the one record.
func (o Order) mayRetake(record ipam.Record) bool {
	return record.State == ipam.StateRetained || record.WasTakenOver() && record.Holder == o.Holder
}

func (o Order) accepts(record ipam.Record) bool {
	if o.Terms.Block.IsValid() && o.Terms.Block != record.Block || o.Terms.Length != record.Block.Bits() {
		return false
	}
	return slices.ContainsFunc(o.Pools, func(p ipam.Pool) bool { return p.Key == record.Pool })
}

// gatewayFor returns the gateway that is handed out with a retained block: its pool may have
// another one than when the block was handed out before.
func (o Order) gatewayFor(record ipam.Record) netip.Addr {
	at := slices.IndexFunc(o.Pools, func(p ipam.Pool) bool { return p.Key == record.Pool })
	_, gateway := o.Pools[at].Subnet(record.Block) // one of those that it accepts
	return gateway
}

// retake takes a retained record over, by an update of the version that was
// seen: of several that try, and of one that releases it, one succeeds. A record
// that is about to be retained is waited for.
//
// For a claim that does not exist yet, policy and time stay in the record as they were:
// where the claim is never stored, it is retained again, unchanged.
func (a *Allocator) retake(ctx context.Context, order Order) (ipam.Record, bool) {
	a.awaitRetained(ctx, order)
	record, ok := a.retained(order)
	if !ok {
		return ipam.Record{}, false
	}
	taken := record
	taken.State, taken.Adopted = ipam.StateBound, true
	taken.Holder, taken.HolderUID, taken.Gateway = order.Holder, order.HolderUID, order.gatewayFor(record)
	if order.Origin == OriginController {
		taken.Reclaim, taken.ReleaseAfter = order.Terms.Reclaim, time.Time{}
	}
	taken, err := a.updateAdopted(ctx, record, taken)
	if err == nil {
		logChange(ctx, "Took over a retained record", taken)
		a.history.Granted(taken, history.TakenOver)
	}
	return taken, err == nil // otherwise there are other blocks
}

// awaitRetained waits, for a short time, where the claim of this name that was
// there before is gone and its record not handled yet.
func (a *Allocator) awaitRetained(ctx context.Context, order Order) {
	isPending := func() bool {
		return slices.ContainsFunc(a.formerly(order), func(r ipam.Record) bool {
			return r.State == ipam.StateBound && (r.Reclaim == ipam.ReclaimRetain || r.Sticky != "") && a.ledger.IsLeaving(r.Name)
		})
	}
	if !isPending() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	a.ledger.Await(ctx, order.keys(), func() bool { return !isPending() })
}
