package witness

import (
	"fmt"
	"strings"
	"time"
)

// Unsettled returns the violations of the state that is required when nothing happens any more:
//
//   - every record has a holder, every holder a record, and reports that it is bound;
//   - every block of a Cluster is held by a claim of it, and no claim is of a Cluster that is not stored;
//   - a pool's own record exists for as long as blocks are recorded in the pool, also
//     if that was forced away, and is not marked as releasing;
//   - nothing is being deleted but pools that have claims and claims of Clusters that exist, and no block is kept
//     whose time has come;
//   - the ranges of a pool that occupies them are recorded, or it reports that another holder has a part, and it
//     keeps no former record that no block needs;
//   - no claim waits for a block for which there is room;
//   - a holder that lost a block to force reports that it is in conflict;
//   - every answer has been compared with the stored object;
//   - the capacity that pools state is exact.
func (w *Witness) Unsettled() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var open []string
	if n := len(w.attempts.answered); n > 0 {
		open = append(open, fmt.Sprintf("%d answers name objects that are not stored yet", n))
	}
	for _, r := range w.records {
		if why := w.unsettledRecord(r); why != "" {
			open = append(open, fmt.Sprintf("record %s of %s %s: %s", r, r.Spec.ClaimRef.Kind, r.Spec.ClaimRef.Name, why))
		}
	}
	for _, holders := range []map[string]*holding{w.claims, w.pools, w.addressClaims} {
		for _, h := range holders {
			if why := w.unsettledHolder(h); why != "" {
				open = append(open, fmt.Sprintf("%s: %s", describe(h), why))
			}
		}
	}
	for key, address := range w.addresses {
		if w.addressClaims[key] != nil {
			continue
		}
		if why := w.unsettledAddress(address, nil); why != "" {
			open = append(open, "the claim of IPAddress "+key+", which does not exist, "+why)
		}
	}
	open = append(open, w.unrecordedPools()...)
	open = append(open, w.unsettledClusters()...)
	for _, pool := range w.pools {
		if pool.holds || pool.occupiesRanges() {
			open = append(open, w.miscounted(pool)...)
		}
	}
	return open
}

func (w *Witness) unsettledRecord(r *Object) string {
	pool := w.pools["/"+r.Spec.ClaimRef.Name]
	switch {
	case r.Terminating():
		return "is being deleted"
	case r.Spec.State == "Releasing":
		return "is marked as releasing"
	case r.Spec.ClaimRef.Kind == "IPPool" && pool != nil && pool.occupiesRanges():
		return w.unsettledFormer(r, pool)
	case r.Spec.ClaimRef.Kind == "IPPool" && len(spaceOf(w.recorded, "pool "+r.Spec.ClaimRef.Name).at) > 0:
		return "" // of a pool that was forced away, and has blocks
	case r.Spec.State == "Cooling", r.Spec.State == "Retained" && r.Spec.ReleaseAfter != nil:
		return "is kept for a time"
	case r.Spec.State == "Retained":
		return ""
	case w.holderOf(r) == nil && !w.isInUse(r):
		return "has no holder: " + string(r.Raw) + w.namesake(r)
	}
	return ""
}

// unrecordedPools returns the pools in which blocks are recorded, though their own CIDR is not.
func (w *Witness) unrecordedPools() []string {
	var open []string
	for place, blocks := range w.recorded {
		name, isPool := strings.CutPrefix(place, "pool ")
		if _, seen := w.homes[name]; isPool && seen && len(blocks.at) > 0 && len(w.owns[name]) == 0 {
			open = append(open, fmt.Sprintf("%s %s: blocks are recorded in it, and its own CIDR is not", Pools, name))
		}
	}
	return open
}

// namesake returns the claim whose name a record gives, though the record is not that claim's.
func (w *Witness) namesake(r *Object) string {
	if h := w.claims[r.Metadata.Namespace+"/"+r.Spec.ClaimRef.Name]; h != nil && r.Spec.ClaimRef.Kind == "IPClaim" {
		return ", beside " + string(h.Raw)
	}
	return ""
}

func (w *Witness) unsettledHolder(h *holding) string {
	switch {
	case h.Terminating():
		return w.unsettledLeaving(h)
	case h.place == "" && h.kind == Claims && h.Spec.CIDR == "":
		return w.unsettledWaiting(h)
	case h.place == "" && h.kind == AddressClaims:
		return w.unsettledAddressClaim(h)
	case h.place == "":
		return w.unsettledRanges(h)
	case h.dispossessed && !h.holds:
		if !conflicts(h) {
			return "lost its block by force, and does not report it"
		}
		return ""
	case w.recordOf(h) == nil:
		return "has no record"
	case h.kind == AddressClaims:
		return w.unsettledAddressClaim(h)
	case h.kind == Claims && h.Status.Phase != "Bound":
		return "does not say that it is bound, but " + h.Status.Phase
	}
	return ""
}

// unsettledLeaving returns the unsettled part of a holder that is being deleted. A pool stays for
// as long as it has claims: its deletion is refused then, unless the replica that was asked had not
// seen them yet.
func (w *Witness) unsettledLeaving(h *holding) string {
	if h.kind == Pools && len(spaceOf(w.recorded, "pool "+h.Metadata.Name).at) > 0 || h.kind == Claims && w.isKeptForCluster(h) {
		return ""
	}
	return "is being deleted"
}

func (w *Witness) unsettledWaiting(h *holding) string {
	pool := w.pools["/"+h.Spec.PoolRef.Name]
	if pool == nil || !pool.holds && !pool.occupiesRanges() || pool.Terminating() || h.Spec.PrefixLength == 0 {
		return ""
	}
	if w.newCount(pool).hasRoom(h.Spec.PrefixLength) {
		return "waits, and there is room"
	}
	return ""
}

func conflicts(h *holding) bool {
	for _, c := range h.Status.Conditions {
		if c.Reason == "Conflict" || strings.HasPrefix(c.Message, "conflict:") {
			return true
		}
	}
	return false
}

// IsHeld reports whether the record of the UID belongs to a holder that has its block, and is not
// being deleted.
func (w *Witness) IsHeld(uid string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	made := w.lives.records[uid]
	if made == nil {
		return false
	}
	r := w.records[made.key()]
	if r == nil || r.Metadata.UID != uid || r.Terminating() || r.Spec.State != "Bound" || r.Spec.ClaimRef.Kind == "IPPool" {
		return false
	}
	h := w.holderOf(r)
	return h != nil && h.holds
}

// Waiting returns how many claims wait for a pool.
func (w *Witness) Waiting(pool string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting[pool])
}

// CountReported returns how many of them have been reported as waiting, long enough ago for every replica to
// know.
func (w *Witness) CountReported(pool string, now time.Time) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, h := range w.waiting[pool] {
		if !h.reportedAt.IsZero() && h.reportedAt.Add(settledIn).Before(now) {
			n++
		}
	}
	return n
}

// Orphans returns how many records have no holder, and are not kept for one.
func (w *Witness) Orphans() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, r := range w.records {
		if r.Spec.State == "Bound" && w.holderOf(r) == nil && !w.isInUse(r) {
			n++
		}
	}
	return n
}

// Left returns the claims that exist, the records of claims, and the IPAddresses.
func (w *Witness) Left() []string { return w.those(func(*Object) bool { return true }) }

// LeftIn returns those of one namespace.
func (w *Witness) LeftIn(namespace string) []string {
	return w.those(func(o *Object) bool { return o.Metadata.Namespace == namespace })
}

// LingerIn returns those of one namespace that were deleted so long ago, and still exist.
func (w *Witness) LingerIn(namespace string, since time.Duration) []string {
	return w.those(func(o *Object) bool {
		return o.Metadata.Namespace == namespace && o.Terminating() && time.Since(*o.Metadata.DeletionTimestamp) > since
	})
}

// those returns the claims, records of claims and IPAddresses that are wanted.
func (w *Witness) those(wanted func(*Object) bool) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []string
	for key, address := range w.addresses {
		if wanted(address) {
			found = append(found, "ipaddresses "+key+" "+string(address.Raw))
		}
	}
	for _, holders := range []map[string]*holding{w.claims, w.addressClaims} {
		for _, h := range holders {
			if wanted(h.Object) {
				found = append(found, describe(h)+" "+string(h.Raw))
			}
		}
	}
	for _, r := range w.records {
		if wanted(r) && r.Spec.ClaimRef.Kind != "IPPool" {
			found = append(found, "record "+r.String()+" "+string(r.Raw))
		}
	}
	return found
}
