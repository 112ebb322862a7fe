package witness

import "net/netip"

// space holds the holders of the blocks of one pool. It is as plain as it can be: every block is
// recorded under each prefix that contains it, so that overlaps are found by looking up.
type space struct {
	at    map[netip.Prefix]map[string]bool // the blocks themselves, by holder
	below map[netip.Prefix]int             // how many blocks lie within, this one included
}

func newSpace() *space {
	return &space{at: map[netip.Prefix]map[string]bool{}, below: map[netip.Prefix]int{}}
}

func (s *space) add(block netip.Prefix, holder string) {
	if s.at[block] == nil {
		s.at[block] = map[string]bool{}
	}
	if s.at[block][holder] {
		return
	}
	s.at[block][holder] = true
	for p := range containing(block) {
		s.below[p]++
	}
}

func (s *space) remove(block netip.Prefix, holder string) {
	if !s.at[block][holder] {
		return
	}
	if delete(s.at[block], holder); len(s.at[block]) == 0 {
		delete(s.at, block)
	}
	for p := range containing(block) {
		if s.below[p]--; s.below[p] == 0 {
			delete(s.below, p)
		}
	}
}

// overlapping returns all holders but one whose block overlaps.
func (s *space) overlapping(block netip.Prefix, but string) []string {
	var found []string
	for p := range containing(block) {
		for holder := range s.at[p] {
			if holder != but {
				found = append(found, holder)
			}
		}
	}
	if s.below[block] == len(s.at[block]) {
		return found // no holder has a part of it
	}
	for p, holders := range s.at {
		if p != block && p.Bits() > block.Bits() && block.Contains(p.Addr()) {
			for holder := range holders {
				if holder != but {
					found = append(found, holder)
				}
			}
		}
	}
	return found
}

// hasFree reports whether a part of a pool is free, of that length.
func (s *space) hasFree(pool netip.Prefix, bits int) bool {
	for n := range uint32(1) << (bits - pool.Bits()) {
		part := netip.PrefixFrom(address(number(pool.Addr())+n<<(32-bits)), bits)
		if s.below[part] == 0 && len(s.overlapping(part, "")) == 0 {
			return true
		}
	}
	return false
}

// containing returns every prefix that contains the block, itself first.
func containing(block netip.Prefix) func(func(netip.Prefix) bool) {
	return func(yield func(netip.Prefix) bool) {
		for bits := block.Bits(); bits >= 0; bits-- {
			p, err := block.Addr().Prefix(bits)
			if err != nil || !yield(p) {
				return
			}
		}
	}
}
