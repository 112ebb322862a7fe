package allocator

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// retained is the block that was kept for a claim of this namespace and name, or
// of its sticky key, where it is still what the claim asks for. Of several under
// one key it is the one that is kept longest: the last that was given back.
func (a *Allocator) retained(order Order) (ipam.Record, bool) {
	var last ipam.Record
	for _, record := range a.formerly(order) {
		if record.State != ipam.Retained || record.Terminating || !order.accepts(record) {
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

// formerly are the records of earlier claims of this name, or of the sticky key.
func (a *Allocator) formerly(order Order) []ipam.Record {
	records := a.ledger.HeldBy(order.Holder)
	if order.Sticky == "" {
		return records
	}
	return append(records, a.ledger.Sticky(ipam.Name{Namespace: order.Holder.Namespace, Name: order.Sticky})...)
}

func (o Order) accepts(record ipam.Record) bool {
	if o.Terms.Block.IsValid() && o.Terms.Block != record.Block || o.Terms.Length != record.Block.Bits() {
		return false
	}
	return slices.ContainsFunc(o.Pools, func(p ipam.Pool) bool { return p.Key == record.Pool })
}

// retake takes a retained record over, by an update of the version that was
// seen: of several that try, and of one that releases it, one succeeds. A record
// that is about to be retained is waited for.
func (a *Allocator) retake(ctx context.Context, order Order) (ipam.Record, bool) {
	a.awaitRetained(ctx, order)
	record, ok := a.retained(order)
	if !ok {
		return ipam.Record{}, false
	}
	uid := "null"
	if order.HolderUID != "" {
		uid = strconv.Quote(order.HolderUID)
	}
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q,"annotations":{%q:%q}},"spec":{"state":%q,"releaseAfter":null,"reclaimPolicy":%q,"claimRef":{"name":%q,"uid":%s}}}`,
		record.UID, record.Version, v1alpha1.AnnotationAdopted, randomSuffix(), ipam.Bound, order.Terms.Reclaim, order.Holder.Name, uid)
	record.State, record.Adopted, record.Reclaim = ipam.Bound, true, order.Terms.Reclaim
	record.Holder, record.HolderUID = order.Holder, order.HolderUID
	taken, err := a.patch(ctx, record, patch)
	return taken, err == nil // otherwise there are other blocks
}

// awaitRetained waits, for a short time, where the claim of this name that was
// there before is gone and its record not settled yet.
func (a *Allocator) awaitRetained(ctx context.Context, order Order) {
	unsettled := func() bool {
		return slices.ContainsFunc(a.formerly(order), func(r ipam.Record) bool {
			return r.State == ipam.Bound && (r.Reclaim == ipam.Retain || r.Sticky != "") && a.ledger.IsLeaving(r.Name)
		})
	}
	if !unsettled() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	a.ledger.Await(ctx, order.keys(), func() bool { return !unsettled() })
}

// Keeping is for how long class and pool have the block of a record kept.
func (a *Allocator) Keeping(record ipam.Record) ipam.Keeping {
	var class *ipam.Class
	var pool *ipam.Pool
	if entry, ok := a.catalogue.Class(record.Class); ok && record.Class != "" {
		class = &entry.Class
	}
	if p, ok := a.catalogue.Pool(record.Pool); ok {
		pool = &p
	}
	return ipam.KeepingOf(class, pool)
}
