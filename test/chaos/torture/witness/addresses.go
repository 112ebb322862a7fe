package witness

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// holderAddress is the kind of Cluster API's claims in the references of records.
const holderAddress = "IPAddressClaim"

// takeAddressClaim takes in a change of one of Cluster API's IPAddressClaims. Its block is the
// address of the IPAddress of its name.
func (w *Witness) takeAddressClaim(e Event) {
	if e.After != nil {
		e.After = w.withBlock(e.After)
	}
	w.takeHolder(e, w.addressClaims)
}

// takeAddress takes in a change of an IPAddress. Its disappearance releases nothing
// while its claim exists, unless a client makes one of another address for the next
// claim of the name.
func (w *Witness) takeAddress(e Event) {
	if e.After == nil {
		delete(w.addresses, e.Before.key())
		return
	}
	w.addresses[e.After.key()] = e.After
	h := w.addressClaims[e.After.key()]
	if h == nil {
		return
	}
	named := w.blockFor(h.Object)
	switch {
	case h.place != "" && named == h.Block:
		return
	case h.place != "" && h.Terminating() && e.After.Attempt() != "":
		w.letGo(h, e.Seen) // its own is gone, and a client made one for the next claim
		return
	case h.place != "":
		w.violated(e, describe(h)+" has another address now", h.Object, e.Before, e.After)
		return
	}
	h.Object = w.withBlock(h.Object)
	w.noteWaiting(e, h)
	if isHeld(h) {
		w.settle(e, h)
	}
}

// withBlock returns a claim as the witness judges it: with the block that it holds or is to hold,
// and the length for which it waits if it names a pool.
func (w *Witness) withBlock(claim *Object) *Object {
	c := *claim
	if h := w.addressClaims[c.key()]; h != nil && h.place != "" && h.Metadata.UID == c.Metadata.UID {
		c.Block = h.Block
	} else {
		c.Block = w.blockFor(claim)
	}
	if c.Block.IsValid() {
		c.Spec.CIDR = c.Block.String()
	}
	if c.Spec.PoolRef.Kind == "IPPool" {
		c.Spec.PrefixLength = 32
	}
	return &c
}

// blockFor returns the address of a claim's IPAddress, the zero Prefix if there is none.
func (w *Witness) blockFor(claim *Object) netip.Prefix {
	address := w.addresses[claim.key()]
	if address == nil {
		return netip.Prefix{}
	}
	addr, err := netip.ParseAddr(address.Spec.Address)
	if err != nil {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(addr, addr.BitLen())
}

// waitsInLine reports whether an IPAddressClaim waits for any address of the pool
// that it names.
func waitsInLine(h *holding) bool {
	return h.Spec.PoolRef.Kind == "IPPool" && !h.Block.IsValid() && h.Status.AddressRef.Name == "" &&
		h.Metadata.Annotations[addressAnnotation] == ""
}

// addressAnnotation on an IPAddressClaim asks for a certain address.
const addressAnnotation = "ipam.cadastre.dev/address"

// recordOfAddress returns the record of the block that an IPAddressClaim holds.
func (w *Witness) recordOfAddress(h *holding) *Object {
	for _, r := range w.byHolder[h.key()] {
		if w.holderOf(r) == h && r.Spec.State == "Bound" {
			return r
		}
	}
	return nil
}

// isBeingServed reports whether a block is recorded for an IPAddressClaim that waits
// no longer, though its IPAddress has not been made yet.
func (w *Witness) isBeingServed(h *holding) bool {
	for _, r := range w.byHolder[h.key()] {
		if h.kind == AddressClaims && r.Spec.State == "Bound" && r.Spec.ClaimRef.UID == h.Metadata.UID {
			return true
		}
	}
	return false
}

// isAdopted reports whether a client made the IPAddress before its claim was served: that takes no
// turn.
func (w *Witness) isAdopted(h *holding) bool {
	address := w.addresses[h.key()]
	return h.kind == AddressClaims && address != nil && address.Attempt() != ""
}

// indexRecord keeps the records of IPAddressClaims by the names of those.
func (w *Witness) indexRecord(e Event) {
	if before := e.Before; before != nil && before.Spec.ClaimRef.Kind == holderAddress {
		key := before.Metadata.Namespace + "/" + before.Spec.ClaimRef.Name
		if delete(w.byHolder[key], before.Metadata.UID); len(w.byHolder[key]) == 0 {
			delete(w.byHolder, key)
		}
	}
	if after := e.After; after != nil && after.Spec.ClaimRef.Kind == holderAddress {
		key := after.Metadata.Namespace + "/" + after.Spec.ClaimRef.Name
		if w.byHolder[key] == nil {
			w.byHolder[key] = map[string]*Object{}
		}
		w.byHolder[key][after.Metadata.UID] = after
	}
}

// isInUse reports whether an IPAddress exists that the record stands for.
func (w *Witness) isInUse(record *Object) bool {
	address := w.addresses[record.Metadata.Namespace+"/"+record.Spec.ClaimRef.Name]
	if address == nil || record.Spec.ClaimRef.Kind != holderAddress {
		return false
	}
	addr, err := netip.ParseAddr(address.Spec.Address)
	return err == nil && record.Block.Addr() == addr
}

// unsettledAddressClaim returns the unsettled part of a claim that is not being deleted, and has
// its own block or none.
func (w *Witness) unsettledAddressClaim(h *holding) string {
	switch {
	case h.place != "" && !h.Is("Ready"):
		return "does not say that it is ready"
	case h.place != "":
		return ""
	case w.addresses[h.key()] != nil:
		return w.unsettledAddress(w.addresses[h.key()], h)
	case h.Metadata.Annotations[addressAnnotation] != "":
		return w.unsettledWish(h)
	}
	return w.unsettledWaiting(h)
}

// unsettledWish returns the unsettled part of a claim that asks for a certain address, and has not
// got it.
func (w *Witness) unsettledWish(h *holding) string {
	wanted, err := netip.ParseAddr(h.Metadata.Annotations[addressAnnotation])
	pool := w.poolWith(h.Spec.PoolRef, wanted)
	if err != nil || pool == nil {
		return ""
	}
	c := w.newCount(pool)
	if at := number(wanted) - c.first; c.recorded[at] || c.withheld[at] {
		return ""
	}
	return "waits, and its address is free"
}

// unsettledAddress returns the unsettled part of an IPAddress whose claim, if there is one, has not
// been given it. It must be recorded, and for no other holder, unless its claim reports the
// conflict or does not exist.
func (w *Witness) unsettledAddress(address *Object, claim *holding) string {
	addr, err := netip.ParseAddr(address.Spec.Address)
	if err != nil || w.poolWith(address.Spec.PoolRef, addr) == nil {
		return ""
	}
	own := ""
	for uid, r := range w.byHolder[address.key()] {
		if w.isInUse(r) {
			own = uid
		}
	}
	rivals := spaceOf(w.recorded, "pool "+address.Spec.PoolRef.Name).overlapping(netip.PrefixFrom(addr, 32), own)
	switch {
	case len(rivals) > 0 && own != "":
		return "has an address that is recorded twice"
	case len(rivals) > 0 && claim != nil && !conflicts(claim):
		return "has an IPAddress that is another claim's, and does not report it"
	case len(rivals) > 0:
		return ""
	case own == "":
		return "has an IPAddress that is not recorded"
	case claim != nil && isOfAnotherPool(address, claim):
		return ""
	case claim != nil:
		return fmt.Sprintf("has an IPAddress of %s, and does not name it: it asks for one of %s, and says %+v",
			address.Spec.PoolRef, claim.Spec.PoolRef, claim.Status.Conditions)
	}
	return ""
}

// isOfAnotherPool reports whether a client made the IPAddress, from another pool than the claim of
// its name asks for, and the claim reports it: the operator deletes neither.
func isOfAnotherPool(address *Object, claim *holding) bool {
	return address.Attempt() != "" && address.Spec.PoolRef != claim.Spec.PoolRef &&
		slices.ContainsFunc(claim.Status.Conditions, func(c Condition) bool {
			return strings.Contains(c.Message, "the IPAddress of this name is from the IPPool "+address.Spec.PoolRef.Name+":")
		})
}

// poolWith returns the pool that a reference names, if it hands out the address.
func (w *Witness) poolWith(ref Reference, addr netip.Addr) *holding {
	pool := w.pools["/"+ref.Name]
	if ref.Kind != "IPPool" || pool == nil || !pool.holds || !pool.Block.Contains(addr) {
		return nil
	}
	return pool
}
