package witness

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// count represents a pool address by address, as plain as can be. Pools of the harness have at most
// a million.
type count struct {
	first              uint32
	bits               int
	recorded, withheld []bool
}

func newCount(pool *holding, recorded *space) *count {
	size := 1 << (32 - pool.Block.Bits())
	c := &count{first: number(pool.Block.Addr()), bits: pool.Block.Bits(), recorded: make([]bool, size), withheld: make([]bool, size)}
	for block := range recorded.at {
		c.mark(c.recorded, block)
	}
	c.withhold(pool)
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
	for _, r := range spec.Spec.Reserved {
		from, to, ok := strings.Cut(r, "-")
		if !ok {
			c.mark(c.withheld, netip.MustParsePrefix(r))
			continue
		}
		for a := netip.MustParseAddr(from); a.Compare(netip.MustParseAddr(to)) <= 0; a = a.Next() {
			c.mark(c.withheld, netip.PrefixFrom(a, 32))
		}
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
	return map[string]int{
		"total": len(c.recorded), "allocated": allocated, "available": available,
		"withheld": withheld, "outOfRange": outOfRange,
	}
}

// miscounted returns the wrong numbers in the capacity of a pool's status.
func (w *Witness) miscounted(pool *holding) []string {
	var wrong []string
	for name, want := range newCount(pool, spaceOf(w.recorded, "pool "+pool.Metadata.Name)).capacity() {
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
