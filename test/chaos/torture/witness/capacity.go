package witness

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
)

// count represents a pool address by address, as plain as can be. Pools of the harness have at most
// a million.
type count struct {
	first              uint32
	bits               int
	recorded, withheld []bool
	// outside holds the addresses of a pool's CIDR that it does not occupy. They are withheld, too.
	outside addressSet
}

func (w *Witness) newCount(pool *holding) *count {
	size := 1 << (32 - pool.Block.Bits())
	c := &count{first: number(pool.Block.Addr()), bits: pool.Block.Bits(), recorded: make([]bool, size), withheld: make([]bool, size)}
	for block := range spaceOf(w.recorded, "pool "+pool.Metadata.Name).at {
		c.mark(c.recorded, block)
	}
	c.withhold(pool)
	if pool.occupiesRanges() {
		w.withholdOutside(pool, c)
	}
	return c
}

// withhold marks the addresses that a pool's spec never hands out.
func (c *count) withhold(pool *holding) {
	var spec struct {
		Spec struct {
			Reserved []string `json:"reserved"`
			Network  *struct {
				PrefixLength int    `json:"prefixLength"`
				Gateway      string `json:"gateway"`
			} `json:"network"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(pool.Raw, &spec); err != nil {
		return // it was read before
	}
	reserved := addressSet{}
	reserved.addRanges(spec.Spec.Reserved...)
	for addr := range reserved {
		c.mark(c.withheld, netip.PrefixFrom(addr, 32))
	}
	if network := spec.Spec.Network; network != nil {
		around := netip.PrefixFrom(pool.Block.Addr(), network.PrefixLength).Masked()
		edge := number(around.Addr()) + 1<<(32-network.PrefixLength) - 1
		c.mark(c.withheld, netip.PrefixFrom(around.Addr(), 32))
		c.mark(c.withheld, netip.PrefixFrom(address(edge), 32))
		if network.Gateway != "" {
			c.mark(c.withheld, netip.PrefixFrom(netip.MustParseAddr(network.Gateway), 32))
		}
	}
}

func (c *count) mark(what []bool, block netip.Prefix) {
	from := int64(number(block.Addr())) - int64(c.first)
	for i := from; i < from+1<<(32-block.Bits()); i++ {
		if i >= 0 && i < int64(len(what)) {
			what[i] = true
		}
	}
}

// hasRoom reports whether a block of the length is free.
func (c *count) hasRoom(bits int) bool {
	size := 1 << max(0, 32-bits)
	for at := 0; at+size <= len(c.recorded); at += size {
		free := true
		for i := at; i < at+size && free; i++ {
			free = !c.recorded[i] && !c.withheld[i]
		}
		if free {
			return true
		}
	}
	return false
}

// capacity returns the numbers that the pool's status has to show.
func (c *count) capacity() map[string]int {
	var allocated, available, withheld, outOfRange int
	for i := range c.recorded {
		switch {
		case c.recorded[i] && c.withheld[i]:
			allocated, withheld, outOfRange = allocated+1, withheld+1, outOfRange+1
		case c.recorded[i]:
			allocated++
		case c.withheld[i]:
			withheld++
		default:
			available++
		}
	}
	withheld -= len(c.outside)
	return map[string]int{
		"total": len(c.recorded) - len(c.outside), "allocated": allocated, "available": available,
		"withheld": withheld, "outOfRange": outOfRange,
	}
}

// miscounted returns the wrong numbers in the capacity of a pool's status.
func (w *Witness) miscounted(pool *holding) []string {
	var wrong []string
	for name, want := range w.newCount(pool).capacity() {
		if got := pool.Status.Capacity[name]; got != strconv.Itoa(want) {
			wrong = append(wrong, fmt.Sprintf("pool %s says %s=%s, and it is %d", pool.Metadata.Name, name, got, want))
		}
	}
	return wrong
}

func number(a netip.Addr) uint32 {
	b := a.As4()
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

func address(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// space holds the holders of the blocks of one pool. It is as plain as it can be: every block is
// recorded under each prefix that contains it, so that overlaps are found by looking up.
type space struct {
	at    map[netip.Prefix]map[string]bool // the blocks themselves, by holder
	below map[netip.Prefix]int             // how many blocks lie within, this one included
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
