package ipam

import (
	"cmp"
	"fmt"
)

// Fold returns the terms of a request under a class, which may be nil. It derives them from the
// pools of the class that exist at the moment. The error is a *PolicyError, or a *MissingError
// if a length follows only from pools that are missing.
//
// The claim counts first, then the class, then the pools.
func Fold(req Request, class *Class, pools []Pool) (Terms, error) {
	t := Terms{
		Family: req.Family, Length: req.Length, Block: req.Block, Reclaim: req.Reclaim,
		Single: req.Single, BlockField: req.BlockField, Selection: SelectFirstFit,
	}
	if class != nil {
		if err := t.underClass(*class); err != nil {
			return Terms{}, err
		}
	}
	if err := t.fromPools(pools); err != nil {
		return Terms{}, err
	}
	if t.Reclaim == "" {
		t.Reclaim = ReclaimDelete
	}
	t.Sticky = req.Sticky
	if t.Retains = retains(t.Reclaim, req.Sticky); t.Retains != "" && class != nil && !class.AllowRetain {
		return Terms{}, t.retainError(fmt.Sprintf("class %s", class.Name))
	}
	return t, t.checkLength(class)
}

// FieldSticky is the field in which an IPAddressClaim states the key by which its block is
// kept.
const FieldSticky = "metadata.annotations[ipam.cadastre.dev/sticky]"

// retains returns the field that asks for the block to be kept; empty if none does.
func retains(reclaim Reclaim, sticky string) string {
	switch {
	case reclaim == ReclaimRetain:
		return "spec.reclaimPolicy"
	case sticky != "":
		return FieldSticky
	}
	return ""
}

// retainError returns the error that refuses to keep a block.
func (t *Terms) retainError(subject string) *PolicyError {
	value, remedy := any(ReclaimRetain), "leave reclaimPolicy out, or write Delete"
	if t.Retains == FieldSticky {
		value, remedy = t.Sticky, "remove the annotation"
	}
	return &PolicyError{Verdict: RetainNotAllowed, Field: t.Retains, Value: value, Remedy: fmt.Sprintf("%s does not allow it (allowRetain): %s", subject, remedy)}
}

func (t *Terms) underClass(c Class) error {
	if t.Family != "" && t.Family != c.Family && !t.Block.IsValid() {
		return &PolicyError{Field: "spec.ipFamily", Value: t.Family,
			Remedy: fmt.Sprintf("class %s hands out %s: remove ipFamily, or name another class", c.Name, c.Family)}
	}
	if t.Block.IsValid() && FamilyOf(t.Block) != c.Family {
		return &PolicyError{Field: t.blockField(), Value: t.Block,
			Remedy: fmt.Sprintf("class %s hands out %s: ask for such a block, or name another class", c.Name, c.Family)}
	}
	t.Class, t.Provisioner, t.Family = c.Name, c.Provisioner, c.Family
	t.Selection, t.Strategy, t.OnExhaustion = c.Selection, c.Strategy, c.OnExhaustion
	if t.Reclaim == "" {
		t.Reclaim = c.Reclaim
	}
	if t.Length == NoLength && !t.Block.IsValid() && !t.Single {
		t.Length = c.Length
	}
	return nil
}

// fromPools fills in the terms that neither claim nor class states.
func (t *Terms) fromPools(pools []Pool) error {
	if t.Block.IsValid() {
		t.Length, t.Family = t.Block.Bits(), FamilyOf(t.Block)
	}
	if t.Family == "" && len(pools) > 0 {
		t.Family = pools[0].Family
	}
	if t.Length != NoLength {
		return nil
	}
	if t.Single && t.Family != "" {
		t.Length = t.Family.Bits()
	}
	if len(pools) == 0 || t.Single {
		return nil
	}
	for _, p := range pools {
		if p.Network == nil {
			return &PolicyError{Field: "spec.prefixLength",
				Remedy: fmt.Sprintf("set it to the length of the block that you need, such as %d for one address: neither the class nor %s has a default", p.Family.Bits(), p.Key)}
		}
	}
	t.Length = t.Family.Bits()
	return nil
}

func (t *Terms) checkLength(class *Class) error {
	if t.Length == NoLength || t.Family == "" {
		return nil
	}
	if t.Length > t.Family.Bits() {
		return &PolicyError{Field: "spec.prefixLength", Value: t.Length,
			Remedy: fmt.Sprintf("must be %d or less for %s", t.Family.Bits(), t.Family)}
	}
	if class != nil && !class.Lengths.Contain(t.Length) && t.Single {
		return &PolicyError{Field: "spec.poolRef.name", Value: class.Name,
			Remedy: fmt.Sprintf("the class hands out /%d to /%d, and an IPAddressClaim is one address, a /%d: set spec.allowedPrefixLengths of the class so that it allows that, or name another class", class.Lengths.Min, class.Lengths.Max, t.Length)}
	}
	if class != nil && !class.Lengths.Contain(t.Length) {
		return &PolicyError{Field: t.lengthField(), Value: t.lengthValue(),
			Remedy: fmt.Sprintf("class %s allows /%d to /%d: ask for one of these", class.Name, class.Lengths.Min, class.Lengths.Max)}
	}
	return nil
}

// blockField returns the field that states the requested block.
func (t Terms) blockField() string { return cmp.Or(t.BlockField, "spec.cidr") }

// lengthField returns the field that states the length of the block.
func (t Terms) lengthField() string {
	if t.Block.IsValid() {
		return t.blockField()
	}
	return "spec.prefixLength"
}

func (t Terms) lengthValue() any {
	if t.Block.IsValid() {
		return t.Block
	}
	return t.Length
}

// Fitting returns the pools that may hand out a block under the terms, and the reasons why the
// others may not. If none may, the error is a *PolicyError that states what one of them would
// hand out.
func (t Terms) Fitting(pools []Pool) (fitting []Pool, unfit []PoolResult, err error) {
	for _, p := range pools {
		if refusal := t.fits(p); refusal != nil {
			unfit = append(unfit, PoolResult{p.Key, refusal})
			continue
		}
		fitting = append(fitting, p)
	}
	if len(fitting) == 0 && len(unfit) > 0 {
		err = unfit[len(unfit)-1].Err
	}
	return fitting, unfit, err
}

// fits returns the reason why a pool may not hand out a block under the terms; nil if it may.
func (t Terms) fits(p Pool) *PolicyError {
	if refusal := t.mismatch(p); refusal != nil {
		return refusal
	}
	if t.Class == "" && t.Retains != "" && !p.AllowRetain {
		return t.retainError(p.Key.String())
	}
	if t.Length != NoLength && !p.Lengths.Contain(t.Length) && t.Single {
		return &PolicyError{Verdict: LengthNotAllowed, Field: "spec.poolRef.name", Value: cmp.Or(t.Class, p.Key.Name),
			Remedy: fmt.Sprintf("%s hands out /%d to /%d, and an IPAddressClaim is one address, a /%d: set spec.allocation of the pool so that it allows that, or name another pool", p.Key, p.Lengths.Min, p.Lengths.Max, t.Length)}
	}
	if t.Length != NoLength && !p.Lengths.Contain(t.Length) {
		return &PolicyError{Verdict: LengthNotAllowed, Field: t.lengthField(), Value: t.lengthValue(),
			Remedy: fmt.Sprintf("%s (%s) hands out /%d to /%d: ask for one of these", p.Key, p.CIDR, p.Lengths.Min, p.Lengths.Max)}
	}
	return nil
}

// mismatch returns the reason why no block of the pool fits the request: it is of the other
// family, or lies elsewhere. For a child pool that waits for its parent, neither family nor
// CIDR need be known: the blocks that it may hand out are judged when it has them.
func (t Terms) mismatch(p Pool) *PolicyError {
	isOther := p.Family != "" && p.Family != t.Family
	switch {
	case isOther && t.Block.IsValid():
		return &PolicyError{Verdict: FamilyMismatch, Field: t.blockField(), Value: t.Block,
			Remedy: fmt.Sprintf("%s is %s: ask for such a block, or name a pool of the family that you need", p.Key, p.Family)}
	case isOther:
		return &PolicyError{Verdict: FamilyMismatch, Field: "spec.ipFamily", Value: t.Family,
			Remedy: fmt.Sprintf("%s is %s: name a pool of the family that you need", p.Key, p.Family)}
	case t.Block.IsValid() && p.CIDR.IsValid() && !p.Has(t.Block):
		return &PolicyError{Verdict: OutsidePool, Field: t.blockField(), Value: t.Block,
			Remedy: fmt.Sprintf("lies outside %s, which is %s: ask for a block within it, or name another pool", p.Key, p.Extent())}
	}
	return nil
}
