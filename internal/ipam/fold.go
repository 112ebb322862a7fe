package ipam

import "fmt"

// Fold is the terms of a request under a class, which may be nil, from those of
// its pools that are there at the moment. The error is a *PolicyError, or a
// *MissingError where a length can only be told from pools that are missing.
//
// What the claim says counts first, then what the class says, then what the
// pools say.
func Fold(req Request, class *Class, pools []Pool) (Terms, error) {
	t := Terms{
		Family: req.Family, Length: req.Length, Block: req.Block, Reclaim: req.Reclaim,
		Selection: SelectFirstFit,
	}
	if class != nil {
		if err := t.underClass(*class); err != nil {
			return Terms{}, err
		}
	}
	if err := t.fromPools(pools, req.Single); err != nil {
		return Terms{}, err
	}
	if t.Reclaim == "" {
		t.Reclaim = Delete
	}
	return t, t.checkLength(class)
}

func (t *Terms) underClass(c Class) error {
	if t.Family != "" && t.Family != c.Family && !t.Block.IsValid() {
		return &PolicyError{Field: "spec.ipFamily", Value: t.Family,
			Remedy: fmt.Sprintf("class %s hands out %s: remove ipFamily, or name another class", c.Name, c.Family)}
	}
	if t.Block.IsValid() && FamilyOf(t.Block) != c.Family {
		return &PolicyError{Field: "spec.cidr", Value: t.Block,
			Remedy: fmt.Sprintf("class %s hands out %s: ask for such a block, or name another class", c.Name, c.Family)}
	}
	t.Class, t.Family = c.Name, c.Family
	t.Selection, t.Strategy, t.OnExhaustion = c.Selection, c.Strategy, c.OnExhaustion
	if t.Reclaim == "" {
		t.Reclaim = c.Reclaim
	}
	if t.Length == NoLength && !t.Block.IsValid() {
		t.Length = c.Length
	}
	return nil
}

// fromPools fills in what neither claim nor class says.
func (t *Terms) fromPools(pools []Pool, single bool) error {
	if t.Block.IsValid() {
		t.Length, t.Family = t.Block.Bits(), FamilyOf(t.Block)
	}
	if t.Family == "" && len(pools) > 0 {
		t.Family = pools[0].Family
	}
	if t.Length != NoLength {
		return nil
	}
	if len(pools) == 0 {
		return nil
	}
	for _, p := range pools {
		if p.Network == nil && !single {
			return &PolicyError{Field: "spec.prefixLength", Value: "not set",
				Remedy: fmt.Sprintf("say how large a block you need, such as %d for one address: neither the class nor %s has a default", p.Family.Bits(), p.Key)}
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
	if class != nil && !class.Lengths.Contain(t.Length) {
		return &PolicyError{Field: t.lengthField(), Value: t.lengthValue(),
			Remedy: fmt.Sprintf("class %s allows /%d to /%d: ask for one of these", class.Name, class.Lengths.Min, class.Lengths.Max)}
	}
	return nil
}

// lengthField is the field that says how large the block is to be.
func (t Terms) lengthField() string {
	if t.Block.IsValid() {
		return "spec.cidr"
	}
	return "spec.prefixLength"
}

func (t Terms) lengthValue() any {
	if t.Block.IsValid() {
		return t.Block
	}
	return t.Length
}

// Fitting is those of the pools that may hand out a block under the terms. None
// is a *PolicyError that says what one of them would hand out.
func (t Terms) Fitting(pools []Pool) ([]Pool, error) {
	var fitting []Pool
	var refusal error
	for _, p := range pools {
		if err := t.fits(p); err != nil {
			refusal = err
			continue
		}
		fitting = append(fitting, p)
	}
	if len(fitting) == 0 {
		return nil, refusal
	}
	return fitting, nil
}

func (t Terms) fits(p Pool) error {
	if p.Family != t.Family && t.Block.IsValid() {
		return &PolicyError{Field: "spec.cidr", Value: t.Block,
			Remedy: fmt.Sprintf("%s is %s: ask for such a block, or name a pool of the family that you need", p.Key, p.Family)}
	}
	if p.Family != t.Family {
		return &PolicyError{Field: "spec.ipFamily", Value: t.Family,
			Remedy: fmt.Sprintf("%s is %s: name a pool of the family that you need", p.Key, p.Family)}
	}
	if t.Block.IsValid() && !p.Has(t.Block) {
		return &PolicyError{Field: "spec.cidr", Value: t.Block,
			Remedy: fmt.Sprintf("lies outside %s, which is %s", p.Key, p.CIDR)}
	}
	if t.Length != NoLength && !p.Lengths.Contain(t.Length) {
		return &PolicyError{Field: t.lengthField(), Value: t.lengthValue(),
			Remedy: fmt.Sprintf("%s (%s) hands out /%d to /%d: ask for one of these", p.Key, p.CIDR, p.Lengths.Min, p.Lengths.Max)}
	}
	return nil
}
